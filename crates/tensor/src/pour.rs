//! Passes the bytes of a tensor to a receiver.

use std::ops::Range;

use statelens_checkpoint::{Error, FileSet, Result, Tensor};

use crate::CastReport;
use crate::gather::Gather;
use crate::machine::{Machine, Need, Out};

pub trait Receive {
    fn receive(&mut self, bytes: &[u8]) -> Result<()>;
}

impl Receive for &mut Out<'_> {
    fn receive(&mut self, bytes: &[u8]) -> Result<()> {
        self(bytes)
    }
}

impl Receive for Vec<u8> {
    fn receive(&mut self, bytes: &[u8]) -> Result<()> {
        self.extend_from_slice(bytes);
        Ok(())
    }
}

/// A [`Gather`] with its files and the receiver of its bytes.
#[derive(Debug)]
pub struct Pour<T> {
    /// The receiver of the logical bytes.
    pub into: T,
    gather: Gather,
    files: FileSet,
    passed: u64,
    total: u64,
}

impl<T: Receive> Pour<T> {
    /// Creates the machine for the elements `range`, counted in C order; see [`Gather::new`].
    pub fn new(
        files: &FileSet,
        tensor: &Tensor,
        range: Range<u64>,
        budget: usize,
        into: T,
    ) -> Result<Self> {
        let count = range.end.saturating_sub(range.start);
        let total = tensor.dtype.bytes_of(count).unwrap_or(0);
        let gather = Gather::new(files, tensor, range, budget)?;
        Ok(Self { into, gather, files: files.clone(), passed: 0, total })
    }

    pub fn all(files: &FileSet, tensor: &Tensor, budget: usize, into: T) -> Result<Self> {
        let numel = tensor.numel();
        let numel = numel.ok_or_else(|| Error::damaged("a tensor too large to count"))?;
        Self::new(files, tensor, 0..numel, budget, into)
    }

    /// Returns the effects of casting on the elements so far.
    pub fn cast_report(&self) -> CastReport {
        self.gather.cast_report()
    }
}

impl<T: Receive> Machine for Pour<T> {
    fn need(&self) -> Need {
        self.gather.need()
    }

    fn files(&self) -> &FileSet {
        &self.files
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<()> {
        let Self { into, gather, passed, .. } = self;
        gather.feed(bytes, &mut |bytes| {
            *passed += bytes.len() as u64;
            into.receive(bytes)
        })
    }

    fn step(&mut self) -> Result<()> {
        let Self { into, gather, files, passed, .. } = self;
        gather.step(files, &mut |bytes| {
            *passed += bytes.len() as u64;
            into.receive(bytes)
        })
    }

    fn progress(&self) -> (u64, u64) {
        (self.passed, self.total)
    }
}
