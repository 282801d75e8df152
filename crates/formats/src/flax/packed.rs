//! A pull parser for MessagePack.

use std::sync::Arc;

use statelens_checkpoint::{Error, Limits, ReadAt, Result, try_alloc};

/// A value, or the header of a longer value whose content follows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Head {
    Nil,
    Bool(bool),
    Int(i64),
    /// An integer that exceeds `i64`.
    Uint(u64),
    Float(f64),
    /// A string; this number of bytes follows.
    Str(u64),
    Bin(u64),
    /// An array; this number of items follows.
    Array(u64),
    /// A map; this number of keys and values follows.
    Map(u64),
    /// An extension: its type, and the number of bytes.
    Ext(i8, u64),
}

/// Reads from the start of a file.
pub(super) struct Cursor<'a> {
    source: Arc<dyn ReadAt>,
    limits: &'a Limits,
    pub(super) at: u64,
    /// Number of bytes read into memory.
    spent: u64,
    /// Whether the last error was an unexpected end of the bytes.
    pub(super) starved: bool,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(source: Arc<dyn ReadAt>, limits: &'a Limits) -> Self {
        Self { source, limits, at: 0, spent: 0, starved: false }
    }

    pub(super) fn left(&self) -> u64 {
        self.source.len().saturating_sub(self.at)
    }

    pub(super) fn skip(&mut self, len: u64) -> Result<()> {
        if len > self.left() {
            return Err(self.cut(len));
        }
        self.at += len;
        Ok(())
    }

    pub(super) fn bytes(&mut self, len: u64) -> Result<Vec<u8>> {
        if len > self.left() {
            return Err(self.cut(len));
        }
        Limits::check("bytes of a text", len, self.limits.string)?;
        self.spent = self.spent.saturating_add(len);
        Limits::check("bytes of all texts together", self.spent, self.limits.structure)?;
        let mut bytes = try_alloc::zeros(len)?;
        self.source.read_at(self.at, &mut bytes)?;
        self.at += len;
        Ok(bytes)
    }

    fn cut(&mut self, len: u64) -> Error {
        self.starved = true;
        Error::damaged(format!("{len} more bytes should follow, but {} do", self.left()))
            .at(self.at)
            .advice("The file may be cut short: compare its size with the original.")
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N]> {
        if N as u64 > self.left() {
            return Err(self.cut(N as u64));
        }
        let mut bytes = [0; N];
        self.source.read_at(self.at, &mut bytes)?;
        self.at += N as u64;
        Ok(bytes)
    }

    fn u8(&mut self) -> Result<u64> {
        Ok(u64::from(u8::from_be_bytes(self.number()?)))
    }

    fn u16(&mut self) -> Result<u64> {
        Ok(u64::from(u16::from_be_bytes(self.number()?)))
    }

    fn u32(&mut self) -> Result<u64> {
        Ok(u64::from(u32::from_be_bytes(self.number()?)))
    }

    fn ext(&mut self, len: u64) -> Result<Head> {
        Ok(Head::Ext(i8::from_be_bytes(self.number()?), len))
    }

    pub(super) fn head(&mut self) -> Result<Head> {
        self.starved = false;
        let start = self.at;
        let [first] = self.number()?;
        Ok(match first {
            0x00..=0x7f => Head::Int(first.into()),
            0x80..=0x8f => Head::Map((first & 15).into()),
            0x90..=0x9f => Head::Array((first & 15).into()),
            0xa0..=0xbf => Head::Str((first & 31).into()),
            0xc0 => Head::Nil,
            0xc1 => {
                return Err(Error::damaged("a byte that msgpack never uses").at(start));
            }
            0xc2 => Head::Bool(false),
            0xc3 => Head::Bool(true),
            0xc4 => Head::Bin(self.u8()?),
            0xc5 => Head::Bin(self.u16()?),
            0xc6 => Head::Bin(self.u32()?),
            0xc7 => {
                let len = self.u8()?;
                self.ext(len)?
            }
            0xc8 => {
                let len = self.u16()?;
                self.ext(len)?
            }
            0xc9 => {
                let len = self.u32()?;
                self.ext(len)?
            }
            0xca => Head::Float(f32::from_be_bytes(self.number()?).into()),
            0xcb => Head::Float(f64::from_be_bytes(self.number()?)),
            0xcc => Head::Uint(self.u8()?),
            0xcd => Head::Uint(self.u16()?),
            0xce => Head::Uint(self.u32()?),
            0xcf => Head::Uint(u64::from_be_bytes(self.number()?)),
            0xd0 => Head::Int(i8::from_be_bytes(self.number()?).into()),
            0xd1 => Head::Int(i16::from_be_bytes(self.number()?).into()),
            0xd2 => Head::Int(i32::from_be_bytes(self.number()?).into()),
            0xd3 => Head::Int(i64::from_be_bytes(self.number()?)),
            0xd4..=0xd8 => self.ext(1 << (first - 0xd4))?,
            0xd9 => Head::Str(self.u8()?),
            0xda => Head::Str(self.u16()?),
            0xdb => Head::Str(self.u32()?),
            0xdc => Head::Array(self.u16()?),
            0xdd => Head::Array(self.u32()?),
            0xde => Head::Map(self.u16()?),
            0xdf => Head::Map(self.u32()?),
            0xe0..=0xff => Head::Int(i64::from(first) - 256),
        })
    }
}
