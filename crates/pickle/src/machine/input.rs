//! The input of the machine.

use statelens_checkpoint::Result;

use crate::graph::damaged;

/// The bytes of a pickle, read from the front.
pub(super) struct Input<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
    /// Whether the bytes ended too early.
    pub(super) starved: bool,
    /// The end of the operand that did not fit, in bytes from the start; 0 if unknown.
    pub(super) needed: u64,
}

impl<'a> Input<'a> {
    pub(super) fn rest(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(super) fn take(&mut self, len: u64) -> Result<&'a [u8]> {
        let rest = self.rest();
        let len = usize::try_from(len).ok().filter(|len| *len <= rest).ok_or_else(|| {
            self.starved = true;
            self.needed = (self.at as u64).saturating_add(len);
            damaged(format!("it needs {len} more bytes and has {rest}"))
                .advice("The file may be cut short: compare its size with the original.")
        })?;
        let bytes = &self.bytes[self.at..self.at + len];
        self.at += len;
        Ok(bytes)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64)?);
        Ok(array)
    }

    pub(super) fn byte(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// Reads up to the next line feed, which is consumed but not returned.
    pub(super) fn line(&mut self) -> Result<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let len = rest.iter().position(|byte| *byte == b'\n');
        let len = len.ok_or_else(|| {
            self.starved = true;
            damaged("a line has no end")
        })?;
        self.at += len + 1;
        Ok(&rest[..len])
    }
}
