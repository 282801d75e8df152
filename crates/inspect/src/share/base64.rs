//! Base 64 with the alphabet for addresses (RFC 4648, section 5), without padding.

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

pub(super) fn encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let at = |index: usize| u32::from(three.get(index).copied().unwrap_or(0));
        let word = at(0) << 16 | at(1) << 8 | at(2);
        for index in 0..=three.len() {
            out.push(char::from(LETTERS[(word >> (18 - 6 * index)) as usize & 63]));
        }
    }
    out
}

/// `None` if this is not what [`encode`] makes of some bytes.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for four in text.as_bytes().chunks(4) {
        let mut word = 0u32;
        for letter in four {
            word = word << 6 | LETTERS.iter().position(|other| other == letter)? as u32;
        }
        let bytes = four.len() * 6 / 8;
        word <<= 6 * (4 - four.len());
        // A single letter holds no byte, and bits beyond the last byte hold nothing.
        if bytes == 0 || word.trailing_zeros() < 24 - 8 * bytes as u32 {
            return None;
        }
        out.extend_from_slice(&word.to_be_bytes()[1..=bytes]);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_rfc_and_goes_back() {
        for (bytes, text) in
            [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg")]
        {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).unwrap(), bytes.as_bytes());
        }
        assert_eq!(encode(&[0xff, 0xef]), "_-8");
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)).unwrap(), all);
    }

    #[test]
    fn what_it_does_not_make_is_refused() {
        for text in ["Z", "Zm9vY", "Zm 8", "Zm8=", "Zm+v", "Zh", "Zm9", "é"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
