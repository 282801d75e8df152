//! Text in protocol 0: quoted strings and escaped Unicode.

use statelens_checkpoint::{Result, Text};

use crate::graph::damaged;

/// Decodes the operand of `STRING`: Python 2's `repr` of a byte string, quotes included.
pub(crate) fn string(line: &[u8]) -> Result<Vec<u8>> {
    let line = line.trim_ascii();
    let inner = match line {
        [b'\'', inner @ .., b'\''] | [b'"', inner @ .., b'"'] => inner,
        _ => return Err(damaged("a string without quotes")),
    };
    let mut out = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let [first, tail @ ..] = rest {
        if *first != b'\\' {
            out.push(*first);
            rest = tail;
            continue;
        }
        let (byte, used) = match tail {
            [b'x', high, low, ..] => (hex(&[*high, *low])? as u8, 3),
            [b'x', ..] => return Err(damaged("an escape is cut short")),
            [b'0'..=b'7', ..] => octal(tail),
            [letter, ..] => match simple(*letter) {
                Some(byte) => (byte, 1),
                None => {
                    // Unknown escapes are kept literally, as in Python.
                    out.push(b'\\');
                    (*letter, 1)
                }
            },
            [] => return Err(damaged("a string ends in a backslash")),
        };
        out.push(byte);
        rest = &tail[used..];
    }
    Ok(out)
}

/// Decodes the operand of `UNICODE`: Latin-1 with `\uXXXX` and `\UXXXXXXXX`, Python's
/// `raw-unicode-escape`.
pub(crate) fn unicode(line: &[u8]) -> Result<Text> {
    let mut points = Vec::with_capacity(line.len());
    let mut rest = line;
    while let [first, tail @ ..] = rest {
        let digits = match tail {
            [b'u', ..] if *first == b'\\' => 4,
            [b'U', ..] if *first == b'\\' => 8,
            // The byte after a backslash does not start an escape itself.
            [second, after @ ..] if *first == b'\\' => {
                points.extend([u32::from(*first), u32::from(*second)]);
                rest = after;
                continue;
            }
            _ => {
                points.push(u32::from(*first));
                rest = tail;
                continue;
            }
        };
        let code = tail.get(1..1 + digits).ok_or_else(|| damaged("an escape is cut short"))?;
        points.push(hex(code)?);
        rest = &tail[1 + digits..];
    }
    Text::from_code_points(points).map_err(|_| damaged("an escape is not a Unicode character"))
}

fn hex(digits: &[u8]) -> Result<u32> {
    digits.iter().try_fold(0u32, |value, digit| {
        let digit = char::from(*digit).to_digit(16);
        Ok(value << 4 | digit.ok_or_else(|| damaged("an escape is not hexadecimal"))?)
    })
}

/// Parses one to three octal digits; returns the byte and the number of digits.
fn octal(digits: &[u8]) -> (u8, usize) {
    let len = digits.iter().take(3).take_while(|digit| matches!(digit, b'0'..=b'7')).count();
    let value = digits[..len].iter().fold(0u32, |value, digit| value * 8 + u32::from(digit - b'0'));
    (value as u8, len)
}

fn simple(letter: u8) -> Option<u8> {
    Some(match letter {
        b'\\' | b'\'' | b'"' => letter,
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'a' => 7,
        b'b' => 8,
        b'f' => 12,
        b'v' => 11,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_quoted_strings_of_python_2() {
        assert_eq!(string(b"'a\\x41\\n\\'\\101\\0q\\z'").unwrap(), b"aA\n'A\0q\\z");
        assert_eq!(string(b"\"it's\"").unwrap(), b"it's");
        for broken in [&b"'abc"[..], b"abc", b"'", b"'\\x4'", b"'\\'", b""] {
            assert!(string(broken).is_err(), "{broken:?}");
        }
    }

    #[test]
    fn unicode_escapes_keep_lone_surrogates() {
        assert_eq!(unicode(b"a\\u00e9\xe9\\U0001f600\\n").unwrap(), "aéé😀\\n");
        assert_eq!(unicode(b"\\ud800").unwrap().as_bytes(), b"\xed\xa0\x80");
        assert_eq!(unicode(b"\\\\u0041\\\\\\u0041\\").unwrap(), "\\\\u0041\\\\A\\");
        assert!(unicode(b"\\u12").is_err());
        assert!(unicode(b"\\uzzzz").is_err());
        assert!(unicode(b"\\U00110000").is_err());
    }
}
