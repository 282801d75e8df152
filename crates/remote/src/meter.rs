//! How much is fetched, and how much may be.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use statelens_checkpoint::{Error, Result};

/// Counts what is fetched from servers, and stops an action that would fetch more than was agreed.
#[derive(Debug)]
pub struct Meter {
    fetched: AtomicU64,
    requests: AtomicU64,
    /// What one action may fetch.
    cap: AtomicU64,
    /// What had been fetched when the action began.
    began: AtomicU64,
    /// Counts the actions.
    action: AtomicU64,
    /// How more can be allowed: a sentence.
    advice: &'static str,
}

impl Meter {
    /// Lets one action fetch so many bytes; `advice` says how more can be allowed.
    pub const fn new(cap: u64, advice: &'static str) -> Self {
        Self {
            fetched: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            cap: AtomicU64::new(cap),
            began: AtomicU64::new(0),
            action: AtomicU64::new(0),
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

    /// What one action may fetch.
    pub fn cap(&self) -> u64 {
        self.cap.load(Relaxed)
    }

    /// Changes what one action may fetch.
    pub fn allow(&self, cap: u64) {
        self.cap.store(cap, Relaxed);
    }

    /// Another action begins.
    pub fn begin(&self) {
        self.began.store(self.fetched(), Relaxed);
        self.action.fetch_add(1, Relaxed);
    }

    /// Which action it is.
    pub(crate) fn action(&self) -> u64 {
        self.action.load(Relaxed)
    }

    /// Whether `more` bytes may be fetched; an error that names the limit if not.
    pub fn check(&self, more: u64, host: &str) -> Result<()> {
        let cap = self.cap();
        let spent = self.fetched().saturating_sub(self.began.load(Relaxed));
        if spent.saturating_add(more) <= cap {
            return Ok(());
        }
        Err(Error::limit(format!(
            "this takes more than the {} that one action may fetch from {host}",
            size(cap)
        ))
        .advice(self.advice))
    }

    /// A request was made and so many bytes came.
    pub fn count(&self, bytes: u64) {
        self.requests.fetch_add(1, Relaxed);
        self.fetched.fetch_add(bytes, Relaxed);
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{bytes} bytes"),
        1_000_000..1_000_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{}.{} GB", bytes / 1_000_000_000, bytes / 100_000_000 % 10),
    }
}
