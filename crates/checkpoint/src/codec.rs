//! Small encodings: hexadecimal, percent-encoding, and the natural order of names.

use std::cmp::Ordering;
use std::fmt::Write as _;

/// Formats bytes in hexadecimal, two lower-case digits each.
pub fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().saturating_mul(2));
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(out, "{byte:02x}");
    }
    out
}

/// Percent-encodes bytes, except those that are `plain`, which must be ASCII.
pub fn percent_encode(bytes: &[u8], plain: impl Fn(u8) -> bool) -> String {
    let mut out = String::with_capacity(bytes.len());
    for byte in bytes {
        if byte.is_ascii() && plain(*byte) {
            out.push(char::from(*byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// Decodes percent-encoded text. A percent sign without two digits is unchanged.
pub fn percent_decode(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let digit = |at: usize| char::from(*after.get(at)?).to_digit(16);
        let (byte, behind) = match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => ((high * 16 + low) as u8, &after[2..]),
            _ => (first, after),
        };
        bytes.push(byte);
        rest = behind;
    }
    bytes
}

/// Compares two names in natural order: runs of digits as numbers, `h.2` before `h.10`; all else by
/// bytes.
pub fn natural_order(one: &[u8], other: &[u8]) -> Ordering {
    let (mut one, mut other) = (one, other);
    loop {
        let (left, right) = (digits(one), digits(other));
        if !left.is_empty() && !right.is_empty() {
            let (short, long) = (number(left), number(right));
            let order = short.len().cmp(&long.len()).then_with(|| short.cmp(long));
            // `007` and `7` are the same number; the shorter text comes first.
            let order = order.then_with(|| left.len().cmp(&right.len()));
            if order.is_ne() {
                return order;
            }
            (one, other) = (&one[left.len()..], &other[right.len()..]);
            continue;
        }
        match (one.split_first(), other.split_first()) {
            (Some((left, rest_one)), Some((right, rest_other))) if left == right => {
                (one, other) = (rest_one, rest_other);
            }
            (left, right) => return left.map(|(left, _)| left).cmp(&right.map(|(right, _)| right)),
        }
    }
}

/// Returns the leading digits of a name.
fn digits(name: &[u8]) -> &[u8] {
    let end = name.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(name.len());
    &name[..end]
}

/// Returns digits without leading zeros.
fn number(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    &digits[zeros..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorts_numbers_numerically() {
        let mut keys = ["h.10.w", "h.2.w", "h.2.b", "h", "h.02.w", "g.99", "h.2", "", "10", "9"];
        keys.sort_by(|one, other| natural_order(one.as_bytes(), other.as_bytes()));
        let sorted = ["", "9", "10", "g.99", "h", "h.2", "h.2.b", "h.2.w", "h.02.w", "h.10.w"];
        assert_eq!(keys, sorted);
    }

    #[test]
    fn percent_encoding_can_be_reversed() {
        let text = "a/b c%é.x";
        let encoded = percent_encode(text.as_bytes(), |byte| byte.is_ascii_alphanumeric());
        assert_eq!(encoded, "a%2Fb%20c%25%C3%A9%2Ex");
        assert_eq!(percent_decode(encoded.as_bytes()), text.as_bytes());
        assert_eq!(percent_decode(b"100%, %zz, %c3"), b"100%, %zz, \xc3");
        assert_eq!(hex(&[0, 0xab, 255]), "00abff");
    }
}
