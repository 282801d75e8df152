//! What comes again and again, made once.

use crate::Text;

/// Keeps a fixed number of things that were made of bytes, wherever their bytes lead: there is
/// nothing to fill up, and no order of them that makes it slow.
#[derive(Debug)]
pub struct Recent<T>(Vec<Option<T>>);

/// Makes texts from bytes, and gives the same one for what it made not long ago.
///
/// A checkpoint says the same few names and values for every tensor; one of twenty thousand would
/// hold each as often.
pub type Interner = Recent<Text>;

/// Things that are kept, a power of two.
const SLOTS: usize = 256;
/// Bytes of the longest of which they are made.
const LONGEST: usize = 48;

impl<T: AsRef<[u8]> + Clone> Recent<T> {
    /// What `make` makes of these bytes, or has made of equal ones that are still kept.
    pub fn get<E>(
        &mut self,
        bytes: &[u8],
        make: impl FnOnce(&[u8]) -> Result<T, E>,
    ) -> Result<T, E> {
        if bytes.len() > LONGEST {
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
    /// As [`Text::decode`].
    pub fn decoded(&mut self, bytes: &[u8]) -> Text {
        // A text with escapes has other bytes than it was made of, and is not looked for by them.
        self.get(bytes, Text::from_surrogatepass)
            .ok()
            .filter(|text| !text.has_escapes())
            .unwrap_or_else(|| Text::decode(bytes))
    }

    /// As [`Text::from_surrogatepass`].
    pub fn text(&mut self, bytes: &[u8]) -> Result<Text, usize> {
        self.get(bytes, Text::from_surrogatepass)
    }
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// Which slot bytes go to: eight at a time, as few are many.
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
    fn equal_bytes_are_one_text_and_others_stay_apart() {
        let mut texts = Interner::default();
        // Shorter ones take no memory of their own.
        let name = b"the name of all shapes there are";
        let one = texts.text(name).unwrap();
        let again = texts.text(name).unwrap();
        assert!(std::ptr::eq(one.as_bytes(), again.as_bytes()));
        // Far more than are kept: each is still itself.
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
