//! Counts and limits the bytes that are fetched.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use statelens_checkpoint::{Advice, Error, Result, size_text};

/// Counts the bytes fetched from servers, and stops an action that would fetch more than was
/// agreed.
///
/// Each action has its own [`Allowance`]. If several actions take turns, their caller sets the
/// current one: see [`Meter::charge`]. If they run at the same time, see [`Meter::call`].
#[derive(Debug)]
pub struct Meter {
    fetched: AtomicU64,
    requests: AtomicU64,
    /// The allowance of the current action.
    charged: Mutex<Arc<Allowance>>,
    /// The limit of each call, and the number of calls that are running.
    cap: u64,
    calls: Mutex<usize>,
    /// Advice on how to allow more: a sentence.
    advice: Advice,
}

/// A call that is running, see [`Meter::call`].
#[derive(Debug)]
pub struct MeteredCall(Arc<Meter>);

impl Drop for MeteredCall {
    fn drop(&mut self) {
        *self.0.calls() -= 1;
    }
}

/// The bytes that one action may fetch and has fetched.
#[derive(Debug, Default)]
pub struct Allowance {
    cap: AtomicU64,
    fetched: AtomicU64,
}

impl Allowance {
    /// Creates an allowance of `cap` bytes.
    pub fn new(cap: u64) -> Arc<Self> {
        Arc::new(Self { cap: AtomicU64::new(cap), fetched: AtomicU64::new(0) })
    }

    /// Returns its limit in bytes.
    pub fn cap(&self) -> u64 {
        self.cap.load(Relaxed)
    }

    /// Changes its limit; the bytes fetched so far still count.
    pub fn allow(&self, cap: u64) {
        self.cap.store(cap, Relaxed);
    }
}

impl Meter {
    /// Creates a meter with an allowance of `cap` bytes for the first action; `advice` explains how
    /// to allow more.
    pub fn new(cap: u64, advice: impl Into<Advice>) -> Self {
        Self {
            fetched: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            charged: Mutex::new(Allowance::new(cap)),
            cap,
            calls: Mutex::new(0),
            advice: advice.into(),
        }
    }

    /// Begins a call, an action that ends when the result is dropped: it may fetch as much as the
    /// first action, and does not inherit failures. Calls that run at the same time, in several
    /// threads, share the sum of their limits.
    pub fn call(self: &Arc<Self>) -> MeteredCall {
        let mut calls = self.calls();
        let (mut cap, mut fetched) = (self.cap, 0);
        if *calls > 0 {
            let others = self.charged();
            cap = cap.saturating_add(others.cap());
            fetched = others.fetched.load(Relaxed);
        }
        *calls += 1;
        self.charge(Arc::new(Allowance { cap: cap.into(), fetched: fetched.into() }));
        drop(calls);
        MeteredCall(self.clone())
    }

    fn calls(&self) -> MutexGuard<'_, usize> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the bytes fetched.
    pub fn fetched(&self) -> u64 {
        self.fetched.load(Relaxed)
    }

    /// Returns the number of requests made.
    pub fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    /// Returns the limit of the current action.
    pub fn cap(&self) -> u64 {
        self.charged().cap()
    }

    /// Returns the bytes that the current action may still fetch.
    pub fn left(&self) -> u64 {
        let charged = self.charged();
        charged.cap().saturating_sub(charged.fetched.load(Relaxed))
    }

    /// Changes the limit of the current action.
    pub fn allow(&self, cap: u64) {
        self.charged().allow(cap);
    }

    /// Begins another action with the same limit.
    pub fn begin(&self) {
        self.charge(Allowance::new(self.cap()));
    }

    /// Charges all further bytes to an action. Returns the previous one.
    pub fn charge(&self, to: Arc<Allowance>) -> Arc<Allowance> {
        std::mem::replace(&mut *self.charged.lock().unwrap_or_else(PoisonError::into_inner), to)
    }

    /// Returns the allowance of the current action.
    pub fn charged(&self) -> Arc<Allowance> {
        self.charged.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Checks whether `more` bytes may be fetched; the error names the limit.
    pub fn check(&self, more: u64, host: &str) -> Result<()> {
        let charged = self.charged();
        let cap = charged.cap();
        if charged.fetched.load(Relaxed).saturating_add(more) <= cap {
            return Ok(());
        }
        Err(Error::limit(format!(
            "this takes more than the {} that one action may fetch from {host}",
            size_text(cap)
        ))
        .coded("fetch-cap")
        .advice(self.advice.clone()))
    }

    /// Counts a request and the bytes that it fetched.
    pub fn count(&self, bytes: u64) {
        self.count_for(&self.charged(), bytes);
    }

    /// As [`Meter::count`], for any action.
    pub fn count_for(&self, action: &Allowance, bytes: u64) {
        self.requests.fetch_add(1, Relaxed);
        self.fetched.fetch_add(bytes, Relaxed);
        action.fetched.fetch_add(bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_has_the_whole_limit() {
        let meter = Arc::new(Meter::new(100, "Allow more."));
        meter.count(90);
        for _ in 0..3 {
            let _call = meter.call();
            meter.check(100, "host").unwrap();
            meter.count(100);
            assert!(meter.check(1, "host").is_err());
        }
        let (one, other) = (meter.call(), meter.call());
        meter.check(200, "host").unwrap();
        meter.count(150);
        drop(one);
        meter.check(50, "host").unwrap();
        assert!(meter.check(51, "host").is_err());
        drop(other);
        let _call = meter.call();
        assert!(meter.check(101, "host").is_err());
    }

    #[test]
    fn each_action_spends_its_own_allowance() {
        let meter = Meter::new(100, "Allow more.");
        let (long, short) = (Allowance::new(100), Allowance::new(100));
        let none = meter.charge(long.clone());
        meter.count(80);
        // Another action in between has all of its own allowance, and leaves the first one's
        // unchanged.
        assert!(Arc::ptr_eq(&meter.charge(short), &long));
        meter.check(100, "host").unwrap();
        meter.count(100);
        assert!(meter.check(1, "host").is_err());
        meter.charge(long.clone());
        assert!(meter.check(21, "host").is_err());
        meter.check(20, "host").unwrap();
        // Bytes are charged to the action that requested them, even if another one is current when
        // they arrive.
        meter.charge(none);
        meter.count_for(&long, 20);
        assert_eq!((meter.fetched(), meter.requests()), (200, 3));
        meter.check(100, "host").unwrap();
        meter.charge(long.clone());
        assert!(meter.check(1, "host").is_err());
        // Lifting the limit of one action leaves the others' unchanged.
        long.allow(u64::MAX);
        meter.check(1 << 40, "host").unwrap();
        meter.begin();
        meter.charge(Allowance::new(100));
        assert!(meter.check(101, "host").is_err());
    }
}
