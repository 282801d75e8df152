//! How much is fetched, and how much may be.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use statelens_checkpoint::{Error, Result};

/// Counts what is fetched from servers, and stops an action that would fetch more than was agreed.
///
/// Each action has its own [`Allowance`]. Where several are under way in turns, whoever runs them
/// says whose turn it is: see [`Meter::charge`].
#[derive(Debug)]
pub struct Meter {
    fetched: AtomicU64,
    requests: AtomicU64,
    /// Whose turn it is.
    charged: Mutex<Arc<Allowance>>,
    /// How more can be allowed: a sentence.
    advice: &'static str,
}

/// What one action may fetch, and what it has fetched.
#[derive(Debug, Default)]
pub struct Allowance {
    cap: AtomicU64,
    fetched: AtomicU64,
}

impl Allowance {
    /// Of so many bytes.
    pub fn new(cap: u64) -> Arc<Self> {
        Arc::new(Self { cap: AtomicU64::new(cap), fetched: AtomicU64::new(0) })
    }

    /// How many bytes it is of.
    pub fn cap(&self) -> u64 {
        self.cap.load(Relaxed)
    }

    /// Makes it one of so many bytes, of which those that were fetched are spent.
    pub fn allow(&self, cap: u64) {
        self.cap.store(cap, Relaxed);
    }
}

impl Meter {
    /// Lets one action fetch so many bytes; `advice` says how more can be allowed.
    pub fn new(cap: u64, advice: &'static str) -> Self {
        Self {
            fetched: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            charged: Mutex::new(Allowance::new(cap)),
            advice,
        }
    }

    /// Bytes that were fetched.
    pub fn fetched(&self) -> u64 {
        self.fetched.load(Relaxed)
    }

    /// Requests that were made.
    pub fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    /// What the action may fetch whose turn it is.
    pub fn cap(&self) -> u64 {
        self.charged().cap()
    }

    /// Changes what the action may fetch whose turn it is.
    pub fn allow(&self, cap: u64) {
        self.charged().allow(cap);
    }

    /// Another action begins, which may fetch as much as the one before.
    pub fn begin(&self) {
        self.charge(Allowance::new(self.cap()));
    }

    /// Charges what is fetched from here on to an action; to which it was before.
    pub fn charge(&self, to: Arc<Allowance>) -> Arc<Allowance> {
        std::mem::replace(&mut *self.charged.lock().unwrap_or_else(PoisonError::into_inner), to)
    }

    /// The action whose turn it is.
    pub fn charged(&self) -> Arc<Allowance> {
        self.charged.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether `more` bytes may be fetched; an error that names the limit if not.
    pub fn check(&self, more: u64, host: &str) -> Result<()> {
        let charged = self.charged();
        let cap = charged.cap();
        if charged.fetched.load(Relaxed).saturating_add(more) <= cap {
            return Ok(());
        }
        Err(Error::limit(format!(
            "this takes more than the {} that one action may fetch from {host}",
            size(cap)
        ))
        .coded("fetch-cap")
        .advice(self.advice))
    }

    /// A request was made and so many bytes came.
    pub fn count(&self, bytes: u64) {
        self.count_for(&self.charged(), bytes);
    }

    /// As [`Meter::count`], for an action whose turn it need not be.
    pub fn count_for(&self, action: &Allowance, bytes: u64) {
        self.requests.fetch_add(1, Relaxed);
        self.fetched.fetch_add(bytes, Relaxed);
        action.fetched.fetch_add(bytes, Relaxed);
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{bytes} bytes"),
        1_000_000..1_000_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{}.{} GB", bytes / 1_000_000_000, bytes / 100_000_000 % 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_action_spends_its_own_allowance() {
        let meter = Meter::new(100, "Allow more.");
        let (long, short) = (Allowance::new(100), Allowance::new(100));
        let none = meter.charge(long.clone());
        meter.count(80);
        // Another action in between has all of its own, and gives nothing to the first.
        assert!(Arc::ptr_eq(&meter.charge(short), &long));
        meter.check(100, "host").unwrap();
        meter.count(100);
        assert!(meter.check(1, "host").is_err());
        meter.charge(long.clone());
        assert!(meter.check(21, "host").is_err());
        meter.check(20, "host").unwrap();
        // What was asked for by an action is charged to it, whoever's turn it is when it comes.
        meter.charge(none);
        meter.count_for(&long, 20);
        assert_eq!((meter.fetched(), meter.requests()), (200, 3));
        meter.check(100, "host").unwrap();
        meter.charge(long.clone());
        assert!(meter.check(1, "host").is_err());
        // Lifting it for one does not lift it for another.
        long.allow(u64::MAX);
        meter.check(1 << 40, "host").unwrap();
        meter.begin();
        meter.charge(Allowance::new(100));
        assert!(meter.check(101, "host").is_err());
    }
}
