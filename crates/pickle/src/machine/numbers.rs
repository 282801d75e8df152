//! Numbers spelled as text, as read by any of CPython's unpicklers.
//!
//! The one in C (`Modules/_pickle.c`) and the one in Python (`Lib/pickle.py`) differ: C ends a line
//! at its first NUL and reads `INT` with `strtol`, which reads `017` as octal; Python strips white
//! space around a `FLOAT` and allows underscores in it. Everything that either accepts is accepted
//! here.

use statelens_checkpoint::{Int, Limits, Result};

use crate::graph::damaged;

/// Maximum number of decimal digits that CPython converts. Hexadecimal, octal and binary numbers
/// have no limit.
const DECIMAL_DIGITS: usize = 4300;

/// Parses the operand of `INT` if it is not a bool.
pub(super) fn int(line: &[u8]) -> Result<Int> {
    if line.is_empty() {
        return Err(not_a_number());
    }
    let text = until_nul(line);
    match old_octal(text) {
        Some(octal) => Ok(octal),
        // `strtol` reads an empty string as 0.
        None if text.is_empty() => Ok(Int::from(0_i64)),
        None => literal(text),
    }
}

/// Parses an integer as Python spells it: `16`, `0x10`, `1_6`, `16L`.
pub fn long(line: &[u8]) -> Result<Int> {
    let line = line.strip_suffix(b"L").unwrap_or(line);
    literal(until_nul(line))
}

/// Parses the operand of `GET` and `PUT`.
pub(super) fn memo_index(line: &[u8]) -> Result<Int> {
    let (negative, digits) = sign(trim(until_nul(line)));
    let index = digits_of(digits, 10)?;
    match negative && index != Int::from(0_i64) {
        true => Err(damaged("a memo index is negative")),
        false => Ok(index),
    }
}

pub(super) fn float(line: &[u8]) -> Result<f64> {
    let text = trim(until_nul(line));
    let plain = without_underscores(text, |byte| byte.is_ascii_digit());
    let number = plain.and_then(|plain| String::from_utf8(plain).ok()?.parse().ok());
    number.ok_or_else(|| damaged("a float is not a number"))
}

/// Returns the part of a line that C reads.
fn until_nul(line: &[u8]) -> &[u8] {
    line.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Strips Python's white space, which includes the vertical tab.
fn trim(text: &[u8]) -> &[u8] {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = text.iter().position(|byte| !is_space(byte)).unwrap_or(text.len());
    let end = text.iter().rposition(|byte| !is_space(byte)).map_or(start, |last| last + 1);
    &text[start..end]
}

fn sign(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    }
}

/// Parses a number like Python's `int(text, 0)`.
fn literal(text: &[u8]) -> Result<Int> {
    let (negative, digits) = sign(trim(text));
    let base = match digits {
        [b'0', b'x' | b'X', ..] => 16,
        [b'0', b'o' | b'O', ..] => 8,
        [b'0', b'b' | b'B', ..] => 2,
        _ => 10,
    };
    let value = match (base, digits) {
        (10, [b'0', ..]) => {
            let zero = digits_of(digits, 10)?;
            if zero != Int::from(0_i64) {
                return Err(not_a_number());
            }
            zero
        }
        (10, _) => digits_of(digits, 10)?,
        // One underscore may follow the prefix.
        (_, digits) => {
            let digits = &digits[2..];
            digits_of(digits.strip_prefix(b"_").unwrap_or(digits), base)?
        }
    };
    Ok(if negative { negated(&value) } else { value })
}

/// Parses a number below 2^63 with a leading 0, as C's `strtol` does; `None` if Python's rules
/// apply.
fn old_octal(text: &[u8]) -> Option<Int> {
    let start = text.iter().position(|byte| !matches!(byte, b' ' | b'\t'..=b'\r'))?;
    let (negative, digits) = sign(&text[start..]);
    if digits.first() != Some(&b'0') {
        return None;
    }
    let value = i64::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()?;
    Some(Int::from(if negative { -value } else { value }))
}

/// Parses digits in a base, with single underscores between them.
fn digits_of(digits: &[u8], base: u32) -> Result<Int> {
    let is_digit = |byte: u8| char::from(byte).is_digit(base);
    let digits = without_underscores(digits, is_digit).unwrap_or_default();
    if digits.is_empty() || !digits.iter().all(|byte| is_digit(*byte)) {
        return Err(not_a_number());
    }
    let bits = match base {
        16 => 4,
        8 => 3,
        2 => 1,
        _ => {
            let count = digits.len() as u64;
            Limits::check("digits of one integer", count, DECIMAL_DIGITS as u64)?;
            let text = std::str::from_utf8(&digits).ok();
            return text.and_then(Int::parse).ok_or_else(not_a_number);
        }
    };
    // The last byte is for the sign.
    let mut bytes = vec![0_u8; digits.len() * bits / 8 + 2];
    for (place, digit) in digits.iter().rev().enumerate() {
        let digit = char::from(*digit).to_digit(base).unwrap_or_default();
        let (byte, shift) = (place * bits / 8, place * bits % 8);
        let word = (digit as u16) << shift;
        bytes[byte] |= word as u8;
        bytes[byte + 1] |= (word >> 8) as u8;
    }
    Ok(Int::from_le_bytes(&bytes))
}

/// Returns the text without its underscores; `None` if one is not between two digits.
fn without_underscores(text: &[u8], is_digit: impl Fn(u8) -> bool) -> Option<Vec<u8>> {
    let misplaced = |at: usize| {
        let before = at.checked_sub(1).and_then(|at| text.get(at));
        ![before, text.get(at + 1)].into_iter().all(|byte| byte.is_some_and(|byte| is_digit(*byte)))
    };
    let mut underscores = text.iter().enumerate().filter(|(_, byte)| **byte == b'_');
    if underscores.any(|(at, _)| misplaced(at)) {
        return None;
    }
    Some(text.iter().copied().filter(|byte| *byte != b'_').collect())
}

fn negated(value: &Int) -> Int {
    let mut bytes = value.to_le_bytes();
    bytes.push(0);
    let mut carry = true;
    for byte in &mut bytes {
        (*byte, carry) = (!*byte).overflowing_add(u8::from(carry));
    }
    Int::from_le_bytes(&bytes)
}

fn not_a_number() -> statelens_checkpoint::Error {
    damaged("an integer is not a number")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Results of `pickle.loads` and `pickle._loads` of CPython 3.11.
    #[test]
    fn parses_integers_as_cpython_does() {
        let read: [(&str, i64); 16] = [
            ("0x10", 16),
            ("-0X1f", -31),
            ("0o17", 15),
            ("0b101", 5),
            ("1_000", 1000),
            ("0x_f", 15),
            ("0_0", 0),
            ("  7\t", 7),
            ("\u{b}7", 7),
            ("+3", 3),
            ("010", 8),
            ("-017", -15),
            ("0x1_0", 16),
            ("12\0junk", 12),
            ("\0", 0),
            ("9223372036854775807", i64::MAX),
        ];
        for (line, value) in read {
            assert_eq!(int(line.as_bytes()).unwrap(), Int::from(value), "{line:?}");
        }
        for line in ["", " ", "08", "1__0", "_1", "1_", "0x", "0x_", "0x__1", "- 1", "1L", "0b2"] {
            assert!(int(line.as_bytes()).is_err(), "{line:?}");
        }
        let long_hex = format!("-0x{}", "f".repeat(20_000));
        let mut bytes = vec![0; 10_000];
        bytes[0] = 1;
        bytes.push(0xff);
        assert_eq!(int(long_hex.as_bytes()).unwrap(), Int::from_le_bytes(&bytes));
    }

    #[test]
    fn parses_long_integers_as_cpython_does() {
        let read: [(&str, i64); 5] =
            [("0x10L", 16), ("10", 10), ("1_0L", 10), (" 4 L", 4), ("5\0xL", 5)];
        for (line, value) in read {
            assert_eq!(long(line.as_bytes()).unwrap(), Int::from(value), "{line:?}");
        }
        for line in ["L", "", "LL", "010L", "1l"] {
            assert!(long(line.as_bytes()).is_err(), "{line:?}");
        }
        assert_eq!(
            long(b"-0x10000000000000000L").unwrap(),
            Int::parse("-18446744073709551616").unwrap()
        );
    }

    #[test]
    fn memo_indices_are_decimal_of_any_size() {
        let read: [(&str, i64); 5] = [("007", 7), (" 1_0 ", 10), ("+5", 5), ("3\0x", 3), ("-0", 0)];
        for (line, value) in read {
            assert_eq!(memo_index(line.as_bytes()).unwrap(), Int::from(value), "{line:?}");
        }
        for line in ["-1", "0x1", "", "1.0"] {
            assert!(memo_index(line.as_bytes()).is_err(), "{line:?}");
        }
        let large = "1".repeat(100);
        assert_eq!(memo_index(large.as_bytes()).unwrap(), Int::parse(&large).unwrap());
        assert!(memo_index("1".repeat(5000).as_bytes()).is_err());
    }

    #[test]
    fn parses_floats_as_cpython_does() {
        for (line, value) in [
            ("1.5", 1.5),
            (" 1_0.2_5 ", 10.25),
            ("1e5", 1e5),
            (".5", 0.5),
            ("5.", 5.0),
            ("-inf", f64::NEG_INFINITY),
            ("Infinity", f64::INFINITY),
            ("1e999", f64::INFINITY),
            ("2\0x", 2.0),
        ] {
            assert_eq!(float(line.as_bytes()).unwrap().to_bits(), f64::to_bits(value), "{line:?}");
        }
        assert!(float(b"NaN").unwrap().is_nan());
        for line in ["", "1__0", "_1", "1_", "1_.5", "0x10", "1,5", "\0"] {
            assert!(float(line.as_bytes()).is_err(), "{line:?}");
        }
    }
}
