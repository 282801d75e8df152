//! A small cache for values that are decoded again and again.

use crate::Text;

/// A cache with a fixed number of slots, indexed by a hash of the bytes that each value was made
/// from. It can't fill up, and no input makes it slow.
#[derive(Debug)]
pub struct Recent<T>(Vec<Option<T>>);

/// A cache of texts that returns the same text for recently seen bytes.
///
/// A checkpoint repeats the same few names and values for each of its (perhaps twenty thousand)
/// tensors and would hold a copy for each.
pub type Interner = Recent<Text>;

/// Number of slots, a power of two.
const SLOTS: usize = 256;
/// Longest input that is cached, in bytes.
const MAX_LEN: usize = 48;

impl<T: AsRef<[u8]> + Clone> Recent<T> {
    /// Returns the cached value for these bytes, or calls `make` and caches its result.
    pub fn get<E>(
        &mut self,
        bytes: &[u8],
        make: impl FnOnce(&[u8]) -> Result<T, E>,
    ) -> Result<T, E> {
        if bytes.len() > MAX_LEN {
            return make(bytes);
        }
        if self.0.is_empty() {
            self.0.resize(SLOTS, None);
        }
        let slot = &mut self.0[slot(bytes)];
        match slot {
            Some(made) if made.as_ref() == bytes => Ok(made.clone()),
            _ => Ok(slot.insert(make(bytes)?).clone()),
        }
    }
}

impl Interner {
    /// Like [`Text::decode`].
    pub fn decoded(&mut self, bytes: &[u8]) -> Text {
        // A text with escapes has other bytes than its input, so it can't be found by them.
        self.get(bytes, Text::from_surrogatepass)
            .ok()
            .filter(|text| !text.has_escapes())
            .unwrap_or_else(|| Text::decode(bytes))
    }

    /// Like [`Text::from_surrogatepass`].
    pub fn text(&mut self, bytes: &[u8]) -> Result<Text, usize> {
        self.get(bytes, Text::from_surrogatepass)
    }
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// Returns the slot for `bytes`. Hashes eight bytes at a time, as most inputs are short.
fn slot(bytes: &[u8]) -> usize {
    let mut hash = bytes.len() as u64;
    let mut add = |word: u64| {
        hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 29;
    };
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().for_each(|word| add(u64::from_le_bytes(*word)));
    add(rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    hash as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interns_equal_bytes_only() {
        let mut texts = Interner::default();
        // Short texts are not allocated, so sharing would not show.
        let name = b"the name of all shapes there are";
        let one = texts.text(name).unwrap();
        let again = texts.text(name).unwrap();
        assert!(std::ptr::eq(one.as_bytes(), again.as_bytes()));
        // Far more than there are slots: each must still be returned unchanged.
        for round in 0..2 {
            for index in 0..5000 {
                let name = format!("name {index}");
                assert_eq!(texts.text(name.as_bytes()).unwrap(), name.as_str(), "{round}");
            }
        }
        let long = "x".repeat(5000);
        assert_eq!(texts.text(long.as_bytes()).unwrap(), long.as_str());
        assert_eq!(texts.text(b"").unwrap(), "");
        assert_eq!(texts.text(b"a\xff"), Err(1));
        assert_eq!(texts.text(b"a\xed\xa0\x80").unwrap().as_str(), None);
    }
}
