//! Tensors for callers that may block.

use std::ops::Range;

use statelens_checkpoint::{Error, FileSet, Limits, Progress, Result, Tensor, Unwatched};

use crate::{BUDGET, BUFFER, Buffer, CastReport, Out, Pour, drive};

/// Reads a tensor and passes its logical bytes to `out`, using one buffer of `buffer_size` bytes
/// (at least 1) and the [`BUDGET`] of a [`Gather`](crate::Gather). Reports progress in logical
/// bytes.
pub fn drain(
    files: &FileSet,
    tensor: &Tensor,
    buffer_size: usize,
    progress: &mut dyn Progress,
    out: &mut Out<'_>,
) -> Result<CastReport> {
    let numel = tensor.numel().ok_or_else(|| Error::damaged("a tensor too large to count"))?;
    drain_range(files, tensor, 0..numel, buffer_size, progress, out)
}

/// Like [`drain`], for the elements `range`, counted in C order. Progress covers the range.
pub fn drain_range(
    files: &FileSet,
    tensor: &Tensor,
    range: Range<u64>,
    buffer_size: usize,
    progress: &mut dyn Progress,
    out: &mut Out<'_>,
) -> Result<CastReport> {
    let mut pour = Pour::new(files, tensor, range, BUDGET, out)?;
    drive(&mut pour, &mut Buffer::new(buffer_size), progress)?;
    Ok(pour.cast_report())
}

/// Returns the logical bytes of the elements `range`, counted in C order. For small ranges.
///
/// Fails if they are more than [`Limits::string`] allows.
pub fn elements(files: &FileSet, tensor: &Tensor, range: Range<u64>) -> Result<Vec<u8>> {
    let size = range.end.saturating_sub(range.start).saturating_mul(tensor.dtype.itemsize());
    Limits::check("bytes of elements read", size, files.limits().string)?;
    let mut pour = Pour::new(files, tensor, range, BUDGET, Vec::new())?;
    drive(&mut pour, &mut Buffer::new(BUFFER), &mut Unwatched)?;
    Ok(pour.into)
}
