//! Groups keys that all rules treat alike, so that only a few layers of a large model are tried.

use indexmap::IndexMap;

/// Kinds of keys, with the number of keys of each kind.
///
/// Rules have holes for numbers, and no family names a number of two digits or more. So `layers.10`
/// and `layers.99` are the same to all of them.
pub(crate) struct Kinds {
    kinds: IndexMap<String, usize>,
    all: usize,
}

impl Kinds {
    /// Returns the kinds of these keys.
    pub(crate) fn of(keys: &[String]) -> Self {
        let mut kinds: IndexMap<String, usize> = IndexMap::new();
        for key in keys {
            *kinds.entry(kind(key)).or_default() += 1;
        }
        Self { kinds, all: keys.len() }
    }

    /// Returns whether `is` holds for any key.
    pub(crate) fn any(&self, is: impl Fn(&str) -> bool) -> bool {
        self.kinds.keys().any(|kind| is(kind))
    }

    /// Returns the number of keys for which `knows` holds; `None` if it is less than nine tenths of
    /// them. Stops as soon as too many are unknown.
    pub(crate) fn known(&self, knows: impl Fn(&str) -> bool) -> Option<usize> {
        let mut unknown = 0;
        for (kind, count) in &self.kinds {
            if !knows(kind) {
                unknown += count;
            }
            if unknown * 10 > self.all {
                return None;
            }
        }
        Some(self.all - unknown)
    }
}

/// Replaces each number of two digits or more in a key by `10`.
fn kind(key: &str) -> String {
    let mut kind = String::with_capacity(key.len());
    let mut digits = 0;
    for letter in key.chars() {
        digits = if letter.is_ascii_digit() { digits + 1 } else { 0 };
        match digits {
            0 | 1 => kind.push(letter),
            2 => {
                kind.pop();
                kind.push_str("10");
            }
            _ => {}
        }
    }
    kind
}

#[cfg(all(test, feature = "embedded"))]
mod tests {
    use super::*;
    use crate::families;

    #[test]
    fn treats_multi_digit_numbers_as_one_kind() {
        let keys = ["h.9.w1", "h.10.w1", "h.99.w1", "h.9999.w1", "h.007", "n"];
        let kinds = Kinds::of(&keys.map(str::to_owned));
        let found: Vec<_> = kinds.kinds.iter().map(|(kind, count)| (&**kind, *count)).collect();
        assert_eq!(found, [("h.9.w1", 1), ("h.10.w1", 3), ("h.10", 1), ("n", 1)]);
        assert_eq!(kinds.known(|_| true), Some(6));
        assert_eq!(kinds.known(|kind| kind != "n"), None);
    }

    /// [`Kinds`] relies on this.
    #[test]
    fn rules_contain_no_multi_digit_numbers() {
        for name in families::names() {
            let Ok(recipe) = families::find(name) else { continue };
            for rule in recipe.blocks.iter().flat_map(|block| &block.rules) {
                for pattern in rule.left.iter().chain(&rule.right) {
                    let text = pattern.text().as_bytes();
                    let several = text.windows(2).any(|two| match [two[0], two[1]] {
                        [first, b'{' | b'['] => first.is_ascii_digit(),
                        [b'}' | b']', second] => second.is_ascii_digit(),
                        [first, second] => first.is_ascii_digit() && second.is_ascii_digit(),
                    });
                    assert!(!several, "{name}: {}", pattern.text());
                }
            }
        }
    }
}
