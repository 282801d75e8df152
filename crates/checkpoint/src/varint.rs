//! Numbers of variable length (LEB128: 7 bits per byte, lowest first), and bytes that follow their
//! length.

/// Appends a number.
#[inline]
pub fn write_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends bytes, preceded by their length.
pub fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    write_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Removes a number from the start of `rest`; `None` if it is cut short or exceeds 64 bits.
#[inline]
pub fn read_number(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, tail) = rest.split_first()?;
        *rest = tail;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return None;
        }
        number |= bits << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// Removes bytes that follow their length from the start of `rest`.
pub fn read_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(read_number(rest)?).ok()?;
    let (bytes, tail) = rest.split_at_checked(length)?;
    *rest = tail;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_bytes_round_trip() {
        let numbers = [0, 1, 0x7f, 0x80, 1 << 53, (1 << 53) + 1, u64::MAX];
        let mut out = Vec::new();
        numbers.iter().for_each(|number| write_number(&mut out, *number));
        write_bytes(&mut out, b"\0\xff");
        let mut rest = out.as_slice();
        for number in numbers {
            assert_eq!(read_number(&mut rest), Some(number));
        }
        assert_eq!(read_bytes(&mut rest), Some(&b"\0\xff"[..]));
        assert_eq!(rest, b"");
    }

    #[test]
    fn rejects_truncated_input() {
        let mut bytes = Vec::new();
        write_number(&mut bytes, u64::MAX);
        for end in 0..bytes.len() {
            assert_eq!(read_number(&mut &bytes[..end]), None);
        }
        assert_eq!(read_bytes(&mut bytes.as_slice()), None);
        assert_eq!(read_number(&mut [0xff; 11].as_slice()), None);
        let mut text = Vec::new();
        write_bytes(&mut text, b"abc");
        assert_eq!(read_bytes(&mut &text[..3]), None);
        assert_eq!(read_bytes(&mut text.as_slice()), Some(b"abc".as_slice()));
    }
}
