//! Python's strings, which may hold lone surrogates.

use std::borrow::{Borrow, Cow};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A string as in Python: Unicode code points, lone surrogates included.
///
/// Stored as UTF-8 if it is valid, else as "generalised UTF-8" in which a lone surrogate takes
/// three bytes (Python's `surrogatepass`). Cheap to clone.
#[derive(Clone)]
pub struct Text(Repr);

#[derive(Clone)]
enum Repr {
    /// A short string, as most numbers and names are, needs no allocation.
    /// Invariant: the first `len` bytes are UTF-8.
    Short {
        len: u8,
        bytes: [u8; SHORT],
    },
    Utf8(Arc<str>),
    /// Invariant: not valid UTF-8, but valid once three-byte surrogates are allowed.
    Surrogates(Arc<[u8]>),
}

/// The number of bytes that fit in the space of a pointer and a length.
const SHORT: usize = 22;

/// The lone surrogates that represent bytes 0x80 to 0xff (PEP 383).
const ESCAPES: std::ops::RangeInclusive<u16> = 0xdc80..=0xdcff;

impl Text {
    /// Decodes UTF-8 in which lone surrogates are allowed. Fails with the offset of the first bad
    /// byte.
    pub fn from_surrogatepass(bytes: &[u8]) -> Result<Self, usize> {
        let mut at = 0;
        loop {
            match std::str::from_utf8(&bytes[at..]) {
                Ok(rest) if at == 0 => return Ok(rest.into()),
                Ok(_) => return Ok(Self(Repr::Surrogates(bytes.into()))),
                Err(error) => {
                    at += error.valid_up_to();
                    if surrogate(&bytes[at..]).is_none() {
                        return Err(at);
                    }
                    at += 3;
                }
            }
        }
    }

    /// Builds a text from code points, each at most `0x10FFFF`; surrogate pairs stay separate, as
    /// in Python. Fails with the first number that is not a code point.
    pub fn from_code_points(points: impl IntoIterator<Item = u32>) -> Result<Self, u32> {
        let mut bytes = Vec::new();
        for point in points {
            match char::from_u32(point) {
                Some(c) => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
                None if (0xd800..0xe000).contains(&point) => bytes.extend_from_slice(&[
                    0xed,
                    0x80 | (point >> 6 & 0x3f) as u8,
                    0x80 | (point & 0x3f) as u8,
                ]),
                None => return Err(point),
            }
        }
        Ok(match String::from_utf8(bytes) {
            Ok(text) => text.into(),
            Err(error) => Self(Repr::Surrogates(error.into_bytes().into())),
        })
    }

    /// Decodes bytes that should be UTF-8 and may be anything, without loss. Each byte that isn't
    /// part of UTF-8 becomes a lone surrogate `U+DC80` to `U+DCFF`, as with Python's
    /// `surrogateescape`, which h5py uses. Other lone surrogates in three bytes (`surrogatepass`)
    /// are kept.
    pub fn decode(bytes: &[u8]) -> Self {
        match Self::from_surrogatepass(bytes) {
            Ok(text) if !text.has_escapes() => text,
            _ => {
                let mut out = Vec::with_capacity(bytes.len());
                for chunk in bytes.utf8_chunks() {
                    out.extend_from_slice(chunk.valid().as_bytes());
                    for byte in chunk.invalid() {
                        out.extend_from_slice(&[0xed, 0xb0 | byte >> 6, 0x80 | byte & 0x3f]);
                    }
                }
                Self(Repr::Surrogates(out.into()))
            }
        }
    }

    /// Returns the bytes from which [`Text::decode`] makes this text. Returns [`Text::as_bytes`]
    /// if no bytes do.
    pub fn encode(&self) -> Cow<'_, [u8]> {
        if !self.has_escapes() {
            return Cow::Borrowed(self.as_bytes());
        }
        let mut out = Vec::with_capacity(self.as_bytes().len());
        for piece in self.pieces() {
            match piece {
                Ok(text) => out.extend_from_slice(text.as_bytes()),
                Err(code) if ESCAPES.contains(&code) => out.push(code as u8),
                Err(_) => return Cow::Borrowed(self.as_bytes()),
            }
        }
        match Self::decode(&out) == *self {
            true => Cow::Owned(out),
            false => Cow::Borrowed(self.as_bytes()),
        }
    }

    /// Returns whether some code points represent bytes that aren't UTF-8: see [`Text::decode`].
    pub fn has_escapes(&self) -> bool {
        matches!(self.0, Repr::Surrogates(_))
            && self.pieces().any(|piece| piece.is_err_and(|code| ESCAPES.contains(&code)))
    }

    /// Returns the string, if it has no lone surrogate.
    pub fn as_str(&self) -> Option<&str> {
        match &self.0 {
            Repr::Short { .. } => std::str::from_utf8(self.as_bytes()).ok(),
            Repr::Utf8(text) => Some(text),
            Repr::Surrogates(_) => None,
        }
    }

    /// Returns the bytes as Python's `surrogatepass` writes them.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Short { len, bytes } => &bytes[..usize::from(*len).min(SHORT)],
            Repr::Utf8(text) => text.as_bytes(),
            Repr::Surrogates(bytes) => bytes,
        }
    }

    /// Returns the string for display: a lone surrogate becomes `\udXXX`.
    pub fn to_lossy(&self) -> Cow<'_, str> {
        match &self.0 {
            Repr::Utf8(text) => Cow::Borrowed(text),
            Repr::Short { .. } => Cow::Borrowed(self.as_str().unwrap_or_default()),
            Repr::Surrogates(bytes) => {
                let mut out = String::with_capacity(bytes.len());
                for chunk in self.pieces() {
                    match chunk {
                        Ok(text) => out.push_str(text),
                        Err(surrogate) => out.push_str(&format!("\\u{surrogate:04x}")),
                    }
                }
                Cow::Owned(out)
            }
        }
    }

    /// Splits the text into valid strings and lone surrogates.
    pub fn pieces(&self) -> impl Iterator<Item = Result<&str, u16>> {
        let mut rest = self.as_bytes();
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            if let Some(code) = surrogate(rest) {
                rest = &rest[3..];
                return Some(Err(code));
            }
            let valid = match std::str::from_utf8(rest) {
                Ok(_) => rest.len(),
                Err(error) => error.valid_up_to(),
            };
            let (head, tail) = rest.split_at(valid);
            rest = tail;
            std::str::from_utf8(head).ok().filter(|text| !text.is_empty()).map(Ok)
        })
    }

    /// Returns whether the text is empty.
    pub fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }
}

/// Returns the surrogate code point at the start of `bytes`, if there is one.
fn surrogate(bytes: &[u8]) -> Option<u16> {
    match bytes {
        [0xed, b @ 0xa0..=0xbf, c @ 0x80..=0xbf, ..] => {
            Some(0xd000 | u16::from(b & 0x3f) << 6 | u16::from(c & 0x3f))
        }
        _ => None,
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Text {}

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// Maps of texts can be looked up by bytes, without allocating a text.
impl Borrow<[u8]> for Text {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// Hashes the bytes, which are equal for equal texts.
impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

/// Orders by code points, as Python does, which is the order of the bytes.
impl Ord for Text {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl PartialOrd for Text {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        match text.len() {
            len @ ..=SHORT => {
                let mut bytes = [0; SHORT];
                bytes[..len].copy_from_slice(text.as_bytes());
                Self(Repr::Short { len: len as u8, bytes })
            }
            _ => Self(Repr::Utf8(text.into())),
        }
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_lossy())
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_lossy())
    }
}

/// Writes a string; writes [`Text::as_bytes`] if the text has lone surrogates.
impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.as_str() {
            Some(text) => serializer.serialize_str(text),
            None => serializer.serialize_bytes(self.as_bytes()),
        }
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl Visitor<'_> for TextVisitor {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Text, E> {
                Ok(text.into())
            }

            fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Text, E> {
                Text::from_surrogatepass(bytes).map_err(|_| E::custom("not a string"))
            }
        }
        deserializer.deserialize_any(TextVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_lone_surrogates() {
        let bytes = b"a\xed\xa0\x80b";
        let text = Text::from_surrogatepass(bytes).unwrap();
        assert_eq!(text.as_str(), None);
        assert_eq!(text.as_bytes(), bytes);
        assert_eq!(text.to_lossy(), "a\\ud800b");
        assert_eq!(Text::from_code_points([0x61, 0xd800, 0x62]).unwrap(), text);
        assert_eq!(text.pieces().collect::<Vec<_>>(), [Ok("a"), Err(0xd800), Ok("b")]);
    }

    #[test]
    fn short_and_long_texts_behave_the_same() {
        assert_eq!(size_of::<Text>(), 24);
        for len in [0, 1, SHORT - 1, SHORT, SHORT + 1, 300] {
            for text in ["x".repeat(len), "\u{e9}".repeat(len / 2)] {
                let held = Text::from(text.as_str());
                assert_eq!(held.as_str(), Some(&*text));
                assert_eq!(held.to_lossy(), text);
                assert_eq!(held, Text::from_surrogatepass(text.as_bytes()).unwrap());
                assert_eq!(held.is_empty(), text.is_empty());
                assert_ne!(held, Text::from(format!("{text}\0")));
            }
        }
    }

    #[test]
    fn round_trips_any_bytes() {
        // Python: b"caf\xe9".decode("utf-8", "surrogateescape") == "caf\udce9"
        let text = Text::decode(b"caf\xe9");
        assert_eq!(text, Text::from_code_points([0x63, 0x61, 0x66, 0xdce9]).unwrap());
        assert_eq!(text.to_lossy(), "caf\\udce9");
        let samples: [&[u8]; 9] = [
            b"",
            b"caf\xc3\xa9",
            b"caf\xe9",
            b"caf\xe8",
            b"\xff\x00\x80",
            b"a\xed\xa0\x80b",
            b"\xed\xb3\xa9",
            b"\xe9\xed\xa0\x80",
            "caf\u{fffd}".as_bytes(),
        ];
        for (at, bytes) in samples.iter().enumerate() {
            let text = Text::decode(bytes);
            assert_eq!(text.encode(), *bytes);
            assert!(samples[..at].iter().all(|other| Text::decode(other) != text));
        }
    }

    #[test]
    fn refuses_invalid_text_bytes() {
        assert_eq!(Text::from_surrogatepass(b"ab\xff"), Err(2));
        assert_eq!(Text::from_surrogatepass(b"ab\xed\xa0"), Err(2));
        assert_eq!(Text::from_code_points([0x110000]), Err(0x110000));
    }
}
