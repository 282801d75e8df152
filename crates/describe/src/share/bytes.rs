//! Encodes numbers and texts as bytes, and back: LEB128 (with zigzag for signed numbers), and UTF-8
//! with a length prefix.

use statelens_checkpoint::varint::{read_bytes, read_number, write_number};
use statelens_checkpoint::{Error, Result};

pub(super) fn put_signed(out: &mut Vec<u8>, number: i64) {
    write_number(out, ((number << 1) ^ (number >> 63)) as u64);
}

/// Decodes numbers and texts.
pub(super) struct Unpacker<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> Unpacker<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn byte(&mut self) -> Result<u8> {
        let (byte, rest) = self.rest.split_first().ok_or_else(cut)?;
        self.rest = rest;
        Ok(*byte)
    }

    pub(super) fn number(&mut self) -> Result<u64> {
        read_number(&mut self.rest).ok_or_else(cut)
    }

    pub(super) fn signed(&mut self) -> Result<i64> {
        let number = self.number()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    /// Reads the number of items that follow; each takes at least one byte.
    pub(super) fn count(&mut self) -> Result<usize> {
        let count = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        if count <= self.rest.len() { Ok(count) } else { Err(cut()) }
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8]> {
        read_bytes(&mut self.rest).ok_or_else(cut)
    }

    /// Reads the bytes before the next `end`, and skips `end`.
    pub(super) fn until(&mut self, end: u8) -> Result<&'a [u8]> {
        let length = self.rest.iter().position(|byte| *byte == end).ok_or_else(cut)?;
        let (bytes, rest) = self.rest.split_at(length);
        self.rest = &rest[1..];
        Ok(bytes)
    }

    pub(super) fn text(&mut self) -> Result<String> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| cut())
    }
}

/// Returns the error for bytes that are not an outline.
pub(super) fn cut() -> Error {
    Error::damaged("the summary is cut short, or was not made by Statelens")
}
