//! Reads the numbers and strings of the header.

use statelens_checkpoint::{ByteOrder, Error, Limits, ReadAt, Result, Structure, try_alloc};

/// Reads from the start of the file, within its end and the limits.
pub(super) struct Cursor<'a> {
    source: &'a Structure,
    limits: &'a Limits,
    pub(super) at: u64,
    pub(super) order: ByteOrder,
    /// Whether counts have 32 bits, as in version 1.
    pub(super) narrow: bool,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(source: &'a Structure, limits: &'a Limits) -> Self {
        Self { source, limits, at: 0, order: ByteOrder::Little, narrow: false }
    }

    pub(super) fn bytes(&mut self, len: u64) -> Result<Vec<u8>> {
        self.ensure(len)?;
        let mut bytes = try_alloc::zeros(len)?;
        self.source.read_at(self.at, &mut bytes)?;
        self.at += len;
        Ok(bytes)
    }

    pub(super) fn skip(&mut self, len: u64) -> Result<()> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.source.len());
        self.at = end.ok_or_else(|| self.cut(len))?;
        Ok(())
    }

    fn ensure(&self, len: u64) -> Result<()> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.source.len());
        let end = end.ok_or_else(|| self.cut(len))?;
        Limits::check("bytes of the header", end, self.limits.structure)
    }

    fn cut(&self, len: u64) -> Error {
        Error::damaged(format!(
            "the header needs {len} more bytes, and the file ends at byte {}",
            self.source.len()
        ))
        .at(self.at)
        .advice("The file may be cut short: compare its size with the original.")
    }

    /// Returns the next `N` bytes of a number, in the order of the file.
    fn number<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.ensure(N as u64)?;
        let mut bytes = [0; N];
        self.source.read_at(self.at, &mut bytes)?;
        self.at += N as u64;
        if self.order == ByteOrder::Big {
            bytes.reverse();
        }
        Ok(bytes)
    }

    pub(super) fn u8(&mut self) -> Result<u8> {
        Ok(u8::from_le_bytes(self.number()?))
    }

    pub(super) fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.number()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.number()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.number()?))
    }

    pub(super) fn count(&mut self) -> Result<u64> {
        if self.narrow { Ok(u64::from(self.u32()?)) } else { self.u64() }
    }

    /// Fails if the rest of the file is too short for `count` entries of at least `least` bytes.
    /// Without this check, the error would come only after all of the rest has been parsed.
    pub(super) fn room(&self, what: &str, count: u64, least: u64, at: u64) -> Result<()> {
        let most = self.source.len().saturating_sub(self.at) / least;
        if count <= most {
            return Ok(());
        }
        Err(Error::damaged(format!("the file counts {count} {what}, but ends before"))
            .at(at)
            .expected(format!("at most {most}"))
            .advice(
                "The number is damaged, or the file is cut short: compare its size with the original.",
            ))
    }

    pub(super) fn text(&mut self) -> Result<Vec<u8>> {
        let start = self.at;
        let len = self.count()?;
        self.room("bytes of a text", len, 1, start)?;
        Limits::check("bytes of a text", len, self.limits.string)
            .map_err(|error| error.at(start))?;
        self.bytes(len)
    }
}
