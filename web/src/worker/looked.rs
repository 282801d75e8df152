//! The tensor that is looked at, and the matrix of it.

use std::borrow::Cow;

use statelens_checkpoint::{Error, Result, Tensor};
use statelens_stats::Matrix;

use crate::protocol::frame::MatrixSelection;
use crate::worker::opened::OpenCheckpoint;

/// The tensor of a row, as numbers.
pub(super) fn numbers_of(open: &OpenCheckpoint, row: u32) -> Result<Cow<'_, Tensor>> {
    let leaf = open.leaves.get(row as usize);
    let tensor = leaf.and_then(|leaf| open.checkpoint.tensor_of(leaf.target));
    let (_, tensor) = tensor.ok_or_else(|| Error::refused("this is not a tensor"))?;
    statelens_tensor::numbers(tensor)
        .ok_or_else(|| Error::unsupported(format!("the numbers of {} are not known", tensor.dtype)))
}

/// The tensor as numbers, and the matrix of it.
pub(super) fn tensor<'a>(
    open: &'a OpenCheckpoint,
    frame: &MatrixSelection,
) -> Result<(Cow<'a, Tensor>, Matrix)> {
    let numbers = numbers_of(open, frame.row)?;
    let matrix = frame.matrix(&numbers.shape);
    let matrix = matrix.ok_or_else(|| Error::refused("it has no values, or no such slice"))?;
    Ok((numbers, matrix))
}
