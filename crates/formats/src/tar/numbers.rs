//! Integers as Python's `int` parses them.

/// The result of parsing a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Number {
    Plain(u64),
    /// A number in some or all versions of Python that is negative, too large or written in
    /// non-ASCII digits.
    Odd,
    /// Not a number in Python.
    None,
}

/// Parses a header field (`nti`): octal digits, or binary if the first byte says so.
pub(super) fn field(bytes: &[u8]) -> Number {
    match bytes {
        [0x80, rest @ ..] => {
            let significant = rest.iter().skip_while(|byte| **byte == 0);
            if significant.clone().count() > 8 {
                return Number::Odd;
            }
            Number::Plain(significant.fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
        }
        [0xff, ..] => Number::Odd,
        _ => {
            let digits = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
            if !digits.is_ascii() {
                return Number::None;
            }
            match strip(digits) {
                [] => Number::Plain(0),
                digits => python(digits, 8),
            }
        }
    }
}

/// Parses like `int(text, base)`: accepts surrounding whitespace, a sign, the prefix of the base,
/// and single underscores between digits.
pub(super) fn python(text: &[u8], base: u32) -> Number {
    if !text.is_ascii() {
        // Python accepts digits and whitespace of other scripts.
        return Number::Odd;
    }
    let text = strip(text);
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let digits = match digits {
        [b'0', b'o' | b'O', rest @ ..] if base == 8 => rest.strip_prefix(b"_").unwrap_or(rest),
        _ => digits,
    };
    let mut number = Some(0_u64);
    let mut after_digit = false;
    for byte in digits {
        match (byte, char::from(*byte).to_digit(base)) {
            (b'_', _) if after_digit => after_digit = false,
            (_, Some(digit)) => {
                number =
                    number.and_then(|sum| sum.checked_mul(base.into())?.checked_add(digit.into()));
                after_digit = true;
            }
            _ => return Number::None,
        }
    }
    match number {
        _ if !after_digit => Number::None,
        Some(0) => Number::Plain(0),
        Some(number) if !negative => Number::Plain(number),
        _ => Number::Odd,
    }
}

/// Strips the ASCII characters that `str.strip` removes.
fn strip(text: &[u8]) -> &[u8] {
    let space = |byte: &u8| matches!(byte, b'\t'..=b'\r' | 0x1c..=0x1f | b' ');
    let start = text.iter().position(|byte| !space(byte)).unwrap_or(text.len());
    let end = text.iter().rposition(|byte| !space(byte)).map_or(start, |last| last + 1);
    &text[start..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values are those of `tarfile.nti` of Python 3.11.
    #[test]
    fn parses_numbers_as_tarfile_does() {
        for (bytes, expected) in [
            (&b"0012345\0"[..], Number::Plain(0o12345)),
            (b" 12345 \0", Number::Plain(0o12345)),
            (b"\t12345\x0b\0", Number::Plain(0o12345)),
            (b"\x1c12345\x1f ", Number::Plain(0o12345)),
            (b"0o12345\0", Number::Plain(0o12345)),
            (b"0O_12345", Number::Plain(0o12345)),
            (b"1_2_345\0", Number::Plain(0o12345)),
            (b"+12345\0x", Number::Plain(0o12345)),
            (b"-0\0", Number::Plain(0)),
            (b"\0\0\0\0", Number::Plain(0)),
            (b"    ", Number::Plain(0)),
            (b"\x80\0\0\0\0\0\0\x07", Number::Plain(7)),
            (b"\x80\x01\0\0\0\0\0\0\0\0\0\0", Number::Odd),
            (b"\xff\xff\xff\xff\xff\xff\xff\xfe", Number::Odd),
            (b"-1\0", Number::Odd),
            (b"1__2", Number::None),
            (b"_12", Number::None),
            (b"12_", Number::None),
            (b"0o", Number::None),
            (b"0o__1", Number::None),
            (b"- 1", Number::None),
            (b"128", Number::None),
            (b"\xb9\0", Number::None),
        ] {
            assert_eq!(field(bytes), expected, "{bytes:?}");
        }
        assert_eq!(python(b" 1_0\n", 10), Number::Plain(10));
        assert_eq!(python("\u{661}".as_bytes(), 10), Number::Odd);
        assert_eq!(python(b"99999999999999999999", 10), Number::Odd);
        assert_eq!(python(b"0o7", 10), Number::None);
    }
}
