//! The encodings of JSON that Python's `json.loads` recognises in bytes (`json.detect_encoding`).

use std::borrow::Cow;

/// Returns the text as UTF-8, without the byte order mark. Text that is not UTF-16 or UTF-32 is
/// unchanged. Lone surrogates become replacement characters.
pub fn utf8(bytes: &[u8]) -> Cow<'_, [u8]> {
    let (width, big, rest) = match bytes {
        [0, 0, 0xfe, 0xff, rest @ ..] => (4, true, rest),
        [0xff, 0xfe, 0, 0, rest @ ..] => (4, false, rest),
        [0xfe, 0xff, rest @ ..] => (2, true, rest),
        [0xff, 0xfe, rest @ ..] => (2, false, rest),
        [0xef, 0xbb, 0xbf, rest @ ..] => return Cow::Borrowed(rest),
        [0, 0, _, _, ..] => (4, true, bytes),
        [0, _, ..] => (2, true, bytes),
        [_, 0, 0, 0, ..] => (4, false, bytes),
        [_, 0, ..] => (2, false, bytes),
        _ => return Cow::Borrowed(bytes),
    };
    let unit = |unit: &[u8]| {
        let add = |sum: u32, byte: &u8| sum << 8 | u32::from(*byte);
        if big { unit.iter().fold(0, add) } else { unit.iter().rev().fold(0, add) }
    };
    let units = rest.chunks_exact(width).map(unit);
    let text: String = match width {
        4 => {
            units.map(|unit| char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
        }
        _ => char::decode_utf16(units.map(|unit| unit as u16))
            .map(|letter| letter.unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect(),
    };
    Cow::Owned(text.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_encodings_with_and_without_bom() {
        let text = "{\"a\": \"ä😀\"}";
        let utf16: Vec<u16> = text.encode_utf16().collect();
        let cases: Vec<Vec<u8>> = vec![
            text.as_bytes().to_vec(),
            [b"\xef\xbb\xbf", text.as_bytes()].concat(),
            utf16.iter().flat_map(|unit| unit.to_le_bytes()).collect(),
            utf16.iter().flat_map(|unit| unit.to_be_bytes()).collect(),
            [0xfeff].iter().chain(&utf16).flat_map(|unit| unit.to_le_bytes()).collect(),
            [0xfeff].iter().chain(&utf16).flat_map(|unit| unit.to_be_bytes()).collect(),
            text.chars().flat_map(|letter| u32::from(letter).to_le_bytes()).collect(),
            text.chars().flat_map(|letter| u32::from(letter).to_be_bytes()).collect(),
            "\u{feff}"
                .chars()
                .chain(text.chars())
                .flat_map(|c| u32::from(c).to_le_bytes())
                .collect(),
            "\u{feff}"
                .chars()
                .chain(text.chars())
                .flat_map(|c| u32::from(c).to_be_bytes())
                .collect(),
        ];
        for bytes in cases {
            assert_eq!(utf8(&bytes), text.as_bytes(), "{bytes:?}");
        }
        assert_eq!(utf8(b""), b"".as_slice());
    }
}
