//! Progress and cancellation of long jobs.

use std::fmt::Display;

use crate::{DType, Error, Result};

/// An observer of a long job. The core only calls it; the command and the page implement it.
pub trait Progress {
    /// Reports that `done` of `total` units (bytes, unless the job says otherwise) are finished;
    /// `total` is 0 while it is unknown. Returns whether to continue.
    fn report(&mut self, done: u64, total: u64) -> bool;

    /// Returns whether [`found`](Self::found) is used. If not, readers skip work that only serves
    /// to report tensors earlier.
    fn hears(&self) -> bool {
        false
    }

    /// Reports a tensor that was found while the file is still being read, in file order. The file
    /// may still be refused afterwards, and not every reader reports tensors.
    fn found(&mut self, _key: &dyn Display, _dtype: &DType, _shape: &[u64]) {}

    /// Reports progress; returns an error if the job was cancelled.
    fn check(&mut self, done: u64, total: u64) -> Result<()> {
        if self.report(done, total) { Ok(()) } else { Err(Error::cancelled()) }
    }
}

/// A progress without an observer: always continues.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unwatched;

impl Progress for Unwatched {
    fn report(&mut self, _done: u64, _total: u64) -> bool {
        true
    }
}
