//! Telling how far a long job is, and being told to stop.

use std::fmt::Display;

use crate::{DType, Error, Result};

/// Watches a long job. Implemented by the faces; the core only calls it.
pub trait Progress {
    /// `done` of `total` units (bytes, unless the job says otherwise) are finished;
    /// `total` is 0 while it is unknown. Returns whether to go on.
    fn report(&mut self, done: u64, total: u64) -> bool;

    /// Whether it hears what [`found`](Self::found) is told. Where it doesn't, readers save what they would do
    /// only to tell sooner.
    fn hears(&self) -> bool {
        false
    }

    /// Hears of a tensor that was found while others are still to come, in the order of the file. What
    /// is told may be refused after all, and not every reader tells.
    fn found(&mut self, _key: &dyn Display, _dtype: &DType, _shape: &[u64]) {}

    /// Reports, and turns a wish to stop into an error.
    fn check(&mut self, done: u64, total: u64) -> Result<()> {
        if self.report(done, total) { Ok(()) } else { Err(Error::cancelled()) }
    }
}

/// Nobody watches: always goes on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unwatched;

impl Progress for Unwatched {
    fn report(&mut self, _done: u64, _total: u64) -> bool {
        true
    }
}
