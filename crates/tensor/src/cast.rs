//! Casts from one dtype to another: rounding to nearest, ties to even.

use statelens_checkpoint::{DType, Error, Result};

/// What a cast did to the elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CastReport {
    /// Elements that were cast; a complex number counts as two.
    pub elements: u64,
    /// Of those, how many are not exactly what they were; the next is a part of it.
    pub changed: u64,
    /// Of those, how many were too large for the dtype (or NaN, where it has none).
    pub overflowed: u64,
}

impl CastReport {
    /// Adds another one.
    pub fn add(&mut self, other: Self) {
        self.elements += other.elements;
        self.changed += other.changed;
        self.overflowed += other.overflowed;
    }
}

/// A cast between two dtypes.
#[derive(Debug)]
pub(crate) struct Cast {
    pub(crate) report: CastReport,
}

impl Cast {
    pub(crate) fn new(from: &DType, to: &DType) -> Result<Self> {
        Err(Error::unsupported(format!("a cast from {from} to {to}")))
    }

    /// Casts whole elements; `out` is emptied first.
    pub(crate) fn run(&mut self, _stored: &[u8], out: &mut Vec<u8>) {
        out.clear();
    }
}
