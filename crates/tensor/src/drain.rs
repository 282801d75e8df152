//! Drivers for callers that may block.

use std::ops::Range;

use statelens_checkpoint::{Error, FileSet, Limits, Progress, Result, Tensor};

use crate::{BUDGET, CastReport, Gather, Need, Out};

/// A good size for the buffer of [`drain`].
pub const BUFFER: usize = 1 << 20;

/// Reads a tensor and passes its logical bytes to `out`, through one buffer of `buffer_size`
/// bytes (at least 1) and the [`BUDGET`] of a [`Gather`]. Progress is in logical bytes.
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

/// As [`drain`], of the elements `range`, counted in C order. Progress is that of the range.
pub fn drain_range(
    files: &FileSet,
    tensor: &Tensor,
    range: Range<u64>,
    buffer_size: usize,
    progress: &mut dyn Progress,
    out: &mut Out<'_>,
) -> Result<CastReport> {
    let count = range.end.saturating_sub(range.start);
    let total = tensor.dtype.bytes_of(count).unwrap_or(0);
    let mut done = 0;
    let mut out = |bytes: &[u8]| {
        done += bytes.len() as u64;
        out(bytes)?;
        progress.check(done, total)
    };
    run(files, Gather::new(files, tensor, range, BUDGET)?, buffer_size, &mut out)
}

/// The logical bytes of the elements `range`, counted in C order: for a look at a few.
///
/// Fails if they are more than [`Limits::string`] allows.
pub fn elements(files: &FileSet, tensor: &Tensor, range: Range<u64>) -> Result<Vec<u8>> {
    let size = range.end.saturating_sub(range.start).saturating_mul(tensor.dtype.itemsize());
    Limits::check("bytes of elements looked at", size, files.limits().string)?;
    let mut bytes = Vec::new();
    let gather = Gather::new(files, tensor, range, BUDGET)?;
    run(files, gather, BUFFER, &mut |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    })?;
    Ok(bytes)
}

fn run(
    files: &FileSet,
    mut gather: Gather,
    buffer_size: usize,
    out: &mut Out<'_>,
) -> Result<CastReport> {
    let mut buffer = Vec::new();
    loop {
        match gather.need() {
            Need::Feed(span) => {
                let len = span.len.min(buffer_size.max(1) as u64) as usize;
                if buffer.len() < len {
                    buffer.resize(len, 0);
                }
                files.read(span.file, span.offset, &mut buffer[..len])?;
                gather.feed(&buffer[..len], out)?;
            }
            Need::Step => gather.step(files, out)?,
            Need::Done => return Ok(gather.cast_report()),
        }
    }
}
