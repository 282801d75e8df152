//! Checksums of the bytes that tasks write. The commit checks the files with them before it gives
//! them their names.

use std::sync::Arc;

use statelens_checkpoint::{Error, Progress, ReadAt, Result};
use statelens_tensor::{Buffer, crc};

use super::results::WrittenRange;
use crate::parallel;
use crate::sink::{FileSink, Sink};

/// Bytes that are read at once.
const PIECE: usize = 256 << 10;
/// The same if a read is a request.
const REMOTE_PIECE: usize = 8 << 20;

/// Writes to files and computes the checksum of each range.
pub(super) struct SummedSink {
    of: FileSink,
    ranges: Vec<RangeSum>,
}

/// The checksum of a range that was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RangeSum {
    /// Number of bytes.
    pub(super) len: u64,
    /// Their CRC-32C.
    pub(super) value: u32,
    /// Whether the first bytes were replaced afterwards, so that the checksum is not theirs.
    pub(super) patched: bool,
}

impl SummedSink {
    pub(super) fn new(of: FileSink) -> Self {
        Self { of, ranges: Vec::new() }
    }

    /// Waits until everything is written; returns the checksums of the ranges, in order.
    pub(super) fn finish(self) -> Result<Vec<RangeSum>> {
        self.of.finish()?;
        Ok(self.ranges)
    }
}

impl Sink for SummedSink {
    fn begin(&mut self, index: usize) -> Result<()> {
        self.ranges.push(RangeSum::default());
        self.of.begin(index)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if let Some(range) = self.ranges.last_mut() {
            range.len += bytes.len() as u64;
            range.value = crc::crc32c(range.value, bytes);
        }
        self.of.write(bytes)
    }

    fn patch_head(&mut self, head: &[u8]) -> Result<()> {
        if let Some(range) = self.ranges.last_mut() {
            range.patched = true;
        }
        self.of.patch_head(head)
    }
}

/// Reads `len` bytes of a file or an object from `at` and returns their CRC-32C.
pub(super) fn range_sum(
    file: &dyn ReadAt,
    at: u64,
    len: u64,
    mut read: impl FnMut(u64) -> Result<()>,
) -> Result<u32> {
    if at.checked_add(len).is_none_or(|end| end > file.len()) {
        return Err(Error::damaged("the file is too short"));
    }
    let most = if file.overhead() > 0 { REMOTE_PIECE } else { PIECE };
    let mut buffer = vec![0; most.min(usize::try_from(len).unwrap_or(most))];
    let (mut done, mut sum) = (0, 0);
    while done < len {
        let piece = usize::try_from(len - done).unwrap_or(most).min(most);
        let bytes = buffer.get_mut(..piece).unwrap_or_default();
        file.read_at(at + done, bytes)?;
        sum = crc::crc32c(sum, bytes);
        done += piece as u64;
        read(done)?;
    }
    Ok(sum)
}

/// Reads what the tasks wrote to `files`, on all cores. Fails at the first range that has changed.
pub(super) fn check_ranges(
    files: &[Arc<dyn ReadAt>],
    ranges: &[WrittenRange],
    progress: &mut dyn Progress,
) -> Result<()> {
    let len = |at: usize| ranges.get(at).map_or(0, |range| range.len);
    let sum = |at: usize, _: &mut Buffer, progress: &mut dyn Progress| {
        let range = ranges.get(at).ok_or_else(|| Error::io("a range is missing"))?;
        let file = files.get(range.file);
        let file = file.ok_or_else(|| Error::damaged("a result names a file that is not there"))?;
        let sum = range_sum(&**file, range.at, range.len, |done| progress.check(done, range.len))?;
        Ok((*range, sum))
    };
    let workers = parallel::cores();
    parallel::in_order(0..ranges.len(), workers, len, sum, progress, |summed: Result<_>| {
        let (WrittenRange { at, sum: expected, .. }, sum) = summed?;
        match sum == expected {
            true => Ok(()),
            false => Err(Error::damaged("the output has changed since a task wrote it")
                .at(at)
                .coded("output-changed")
                .advice("Abort the job, and plan it again.")),
        }
    })
}
