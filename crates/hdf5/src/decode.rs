//! Decodes single values.

use statelens_checkpoint::{ByteOrder, Int, Text};

/// Termination of a text of fixed size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Padding {
    /// Ends at the first NUL.
    Null,
    /// NULs at the end are padding.
    NullPad,
    /// Spaces at the end are padding.
    Space,
}

/// Decodes text up to the first NUL: see [`Text::decode`].
pub(crate) fn text(bytes: &[u8]) -> Text {
    let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    Text::decode(&bytes[..len])
}

/// Returns the bytes of a number in little-endian order.
pub(crate) fn little(bytes: &[u8], order: ByteOrder) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if order == ByteOrder::Big {
        bytes.reverse();
    }
    bytes
}

pub(crate) fn int(bytes: &[u8], signed: bool, order: ByteOrder) -> Int {
    let mut bytes = little(bytes, order);
    if !signed {
        bytes.push(0);
    }
    Int::from_le_bytes(&bytes)
}

pub(crate) fn fixed_text(bytes: &[u8], padding: Padding) -> Text {
    match padding {
        Padding::Null => text(bytes),
        Padding::NullPad => {
            let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            Text::decode(&bytes[..end])
        }
        Padding::Space => {
            let end = bytes.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
            Text::decode(&bytes[..end])
        }
    }
}
