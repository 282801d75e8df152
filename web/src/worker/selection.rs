//! Resolves a selection to a tensor and a matrix of it.

use std::borrow::Cow;

use statelens_checkpoint::{Error, Layout, Result, Tensor};
use statelens_tensor::{ElementPlaces, Slice, sliced};
use statelens_values::Matrix;

use crate::protocol::selection::MatrixSelection;
use crate::worker::opened::OpenCheckpoint;

/// Returns the tensor of a row, decoded as numbers.
pub(crate) fn numbers_of(open: &OpenCheckpoint, row: u32) -> Result<Cow<'_, Tensor>> {
    let leaf = open.leaves.get(row as usize);
    let tensor = leaf.and_then(|leaf| open.checkpoint.tensor_of(leaf.target));
    let (_, tensor) = tensor.ok_or_else(|| Error::refused("this is not a tensor"))?;
    statelens_tensor::numbers(tensor)
        .ok_or_else(|| Error::unsupported(format!("values of {} can't be decoded", tensor.dtype)))
}

/// Returns the byte of the file at which a tensor begins, and the bytes of an element, if the
/// elements are stored one after the other.
pub(crate) fn stored_at(tensor: &Tensor) -> Option<(u64, u64)> {
    match tensor.layout {
        Layout::Span(span) if tensor.stored == tensor.dtype => {
            Some((span.offset, tensor.dtype.itemsize()))
        }
        _ => None,
    }
}

/// Maximum size in bytes of a slice of quantised blocks, which is unpacked here.
const MAX_SLICE: u64 = 64 << 20;

/// Returns a slice of a tensor as a tensor.
pub(crate) fn slice_of(open: &OpenCheckpoint, tensor: &Tensor, slice: &Slice) -> Result<Tensor> {
    sliced(&open.checkpoint.files, tensor, slice, MAX_SLICE)
}

/// Returns the selected tensor as numbers, and the matrix of it. A contiguous selection is a range
/// of the tensor; for any other the tensor is a view.
pub(crate) fn tensor<'a>(
    open: &'a OpenCheckpoint,
    selection: &MatrixSelection,
) -> Result<(Cow<'a, Tensor>, Matrix)> {
    let numbers = numbers_of(open, selection.row)?;
    let slice: Slice = selection.slice.parse()?;
    let places = ElementPlaces::new(&slice, &numbers.shape)?;
    let (shape, len) = (places.shape(), places.count());
    if numbers.numel().is_none() || len == 0 || shape.len() > 2 {
        return Err(Error::refused("it is empty, or it does not have this slice"));
    }
    let columns = shape.last().copied().unwrap_or(1);
    let (numbers, first) = match places.run() {
        Some(run) => (numbers, run.start),
        None => (Cow::Owned(slice_of(open, &numbers, &slice)?), 0),
    };
    let matrix = Matrix { first, len, columns };
    Ok((numbers, selection.fold.map_or(matrix, |columns| matrix.folded(columns))))
}
