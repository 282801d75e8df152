//! Shapes: counting elements and computing positions.

use statelens_checkpoint::{Error, Result, numel};

pub(crate) fn count(shape: &[u64]) -> Result<u64> {
    let count = numel(shape);
    count.ok_or_else(|| Error::damaged(format!("shape {shape:?} has too many elements to count")))
}

/// Returns the position of an index in the C order of `shape`.
pub(crate) fn linear(index: &[u64], shape: &[u64]) -> u64 {
    index.iter().zip(shape).fold(0, |at, (index, dim)| at * dim + index)
}
