//! The part of the wire format of protocol buffers that checkpoints use.
//!
//! <https://protobuf.dev/programming-guides/encoding/>. Messages are read field by field, without
//! allocation or recursion.

use statelens_checkpoint::varint::{read_number, write_number};
use statelens_checkpoint::{Error, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldValue<'a> {
    Varint(u64),
    Fixed64(u64),
    /// A string, a message, or packed numbers.
    Bytes(&'a [u8]),
    Fixed32(u32),
}

/// The remaining fields of a message.
#[derive(Debug)]
pub(super) struct Message<'a>(&'a [u8]);

impl<'a> Message<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the number and the value of the next field.
    fn field(&mut self) -> Result<Option<(u64, FieldValue<'a>)>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = varint(&mut self.0)?;
        let field = match tag & 7 {
            0 => FieldValue::Varint(varint(&mut self.0)?),
            1 => FieldValue::Fixed64(u64::from_le_bytes(take(&mut self.0)?)),
            2 => {
                let len = varint(&mut self.0)?;
                let len = usize::try_from(len).ok().filter(|len| *len <= self.0.len());
                let (bytes, rest) = self.0.split_at(len.ok_or_else(ends)?);
                self.0 = rest;
                FieldValue::Bytes(bytes)
            }
            5 => FieldValue::Fixed32(u32::from_le_bytes(take(&mut self.0)?)),
            wire => {
                return Err(Error::damaged(format!(
                    "a protocol buffer has a field of wire type {wire}"
                )));
            }
        };
        Ok(Some((tag >> 3, field)))
    }
}

impl<'a> Iterator for Message<'a> {
    type Item = Result<(u64, FieldValue<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.field().transpose()
    }
}

/// Reads a varint and advances `bytes` past it.
pub(super) fn varint(bytes: &mut &[u8]) -> Result<u64> {
    read_number(bytes).ok_or_else(ends)
}

/// Appends a numeric field, unless the value is zero, which is the default.
pub(super) fn put_number(out: &mut Vec<u8>, number: u64, value: u64) {
    if value != 0 {
        write_number(out, number << 3);
        write_number(out, value);
    }
}

/// Appends a field of bytes: a string or a message.
pub(super) fn put_bytes(out: &mut Vec<u8>, number: u64, value: &[u8]) {
    write_number(out, number << 3 | 2);
    write_number(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// Appends a field with any value, even one that is zero.
pub(super) fn put(out: &mut Vec<u8>, number: u64, value: FieldValue<'_>) {
    match value {
        FieldValue::Varint(value) => {
            write_number(out, number << 3);
            write_number(out, value);
        }
        FieldValue::Fixed64(value) => {
            write_number(out, number << 3 | 1);
            out.extend_from_slice(&value.to_le_bytes());
        }
        FieldValue::Bytes(bytes) => put_bytes(out, number, bytes),
        FieldValue::Fixed32(value) => put_fixed32(out, number, value),
    }
}

/// Appends a field with a 4-byte integer, even if that is zero.
pub(super) fn put_fixed32(out: &mut Vec<u8>, number: u64, value: u32) {
    write_number(out, number << 3 | 5);
    out.extend_from_slice(&value.to_le_bytes());
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk::<N>().ok_or_else(ends)?;
    *bytes = rest;
    Ok(*first)
}

fn ends() -> Error {
    Error::damaged("a protocol buffer ends within a field")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_fields_and_refuses_truncated_ones() {
        let bytes = [0x08, 0x96, 0x01, 0x12, 2, b'h', b'i', 0x1d, 1, 0, 0, 0];
        let mut message = Message::new(&bytes);
        assert_eq!(message.field(), Ok(Some((1, FieldValue::Varint(150)))));
        assert_eq!(message.field(), Ok(Some((2, FieldValue::Bytes(b"hi")))));
        assert_eq!(message.field(), Ok(Some((3, FieldValue::Fixed32(1)))));
        assert_eq!(message.field(), Ok(None));
        for cut in [&bytes[..2], &bytes[3..6], &bytes[7..9], &[0x0b][..], &[0xff; 11][..]] {
            assert!(Message::new(cut).field().is_err(), "{cut:?}");
        }
    }

    #[test]
    fn negative_varints_have_ten_bytes() {
        let mut bytes = &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 7][..];
        assert_eq!(varint(&mut bytes), Ok(u64::MAX));
        assert_eq!(bytes, [7]);
    }
}
