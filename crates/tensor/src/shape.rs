//! Shapes: counting elements and computing positions.

use statelens_checkpoint::{Error, Result};

/// Returns the number of elements of a shape.
pub(crate) fn count(shape: &[u64]) -> Result<u64> {
    if shape.contains(&0) {
        return Ok(0);
    }
    let count = shape.iter().try_fold(1u64, |count, dim| count.checked_mul(*dim));
    count.ok_or_else(|| Error::damaged(format!("shape {shape:?} has too many elements to count")))
}

/// Returns the position of an index in the C order of `shape`.
pub(crate) fn linear(index: &[u64], shape: &[u64]) -> u64 {
    index.iter().zip(shape).fold(0, |at, (index, dim)| at * dim + index)
}
