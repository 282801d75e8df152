//! The bytes of a pickle, read on demand, without strings that are too long to keep in memory.

use statelens_checkpoint::{Result, try_alloc};
use statelens_pickle::{Broken, opcode as op};

use super::super::section::some;
use super::Blob;

/// The beginning of a pickle.
pub(super) struct Window<'a> {
    blob: &'a Blob,
    /// The offset of the pickle in the blob.
    at: u64,
    pub(super) bytes: Vec<u8>,
    /// Number of bytes of strings that were left out.
    left_out: u64,
    /// The maximum number of bytes to keep.
    most: u64,
}

impl<'a> Window<'a> {
    /// Reads the first `len` bytes from `at`. At most `most` bytes will be kept.
    pub(super) fn new(blob: &'a Blob, at: u64, len: u64, most: u64) -> Result<Self> {
        let bytes = some(&*blob.source, at, len.min(most))?;
        Ok(Self { blob, at, bytes, left_out: 0, most })
    }

    /// Returns the offset in the blob of a byte in the window, accounting for strings that were
    /// left out.
    pub(super) fn offset(&self, index: u64) -> u64 {
        self.at.saturating_add(self.left_out).saturating_add(index)
    }

    /// Returns whether the blob continues after the window.
    pub(super) fn is_short(&self) -> bool {
        self.offset(self.bytes.len() as u64) < self.blob.source.len()
    }

    /// Extends the window to four times its length, or to the end of the truncated operand. Returns
    /// whether there were more bytes, and room for them.
    pub(super) fn grow(&mut self, broken: &Broken) -> Result<bool> {
        let len = self.bytes.len() as u64;
        let missing = broken.needed.saturating_sub(len);
        self.read(len.saturating_mul(3).max(4 << 10).max(missing))
    }

    /// Replaces the string at which the machine stopped by an empty one, if it is too long to keep
    /// and ends within the blob. Returns whether that was done.
    pub(super) fn leave_out(&mut self, broken: &Broken, start: u64) -> Result<bool> {
        let too_long = !broken.starved || broken.needed > self.most;
        let opcode = broken.error.offset().and_then(|offset| offset.checked_sub(start));
        let opcode = opcode.and_then(|opcode| usize::try_from(opcode).ok());
        let Some((opcode, byte)) = opcode.and_then(|at| Some((at, *self.bytes.get(at)?))) else {
            return Ok(false);
        };
        let len = match byte {
            op::BINUNICODE | op::BINBYTES | op::BINSTRING | op::LONG4 => 4,
            op::BINUNICODE8 | op::BINBYTES8 | op::BYTEARRAY8 => 8,
            _ => return Ok(false),
        };
        let end = opcode + 1 + len;
        if !too_long
            || broken.needed < end as u64
            || self.offset(broken.needed) > self.blob.source.len()
        {
            return Ok(false);
        }
        self.bytes.truncate(opcode + 1);
        try_alloc::make_room(&mut self.bytes, len as u64)?;
        self.bytes.resize(end, 0);
        self.left_out = self.left_out.saturating_add(broken.needed - end as u64);
        self.read(4 << 10)?;
        Ok(true)
    }

    fn read(&mut self, len: u64) -> Result<bool> {
        let kept = self.bytes.len() as u64;
        let more =
            some(&*self.blob.source, self.offset(kept), len.min(self.most.saturating_sub(kept)))?;
        try_alloc::make_room(&mut self.bytes, more.len() as u64)?;
        self.bytes.extend_from_slice(&more);
        Ok(!more.is_empty())
    }
}
