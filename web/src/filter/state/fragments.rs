//! Words that match by the beginnings of the parts of a key: `l3 up` for `layers.3.mlp.up_proj`.

/// The fragments of a word, in order: letters that a part of the key begins with, and whole numbers.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fragments(Vec<String>);

impl Fragments {
    /// Splits a word where letters and digits meet, and at other characters.
    pub(super) fn new(word: &str) -> Self {
        Self(parts(&word.to_lowercase()).map(str::to_owned).collect())
    }

    /// Returns whether the key has parts that begin with the fragments, in order.
    pub(super) fn match_key(&self, key: &str) -> bool {
        let key = key.to_lowercase();
        let mut parts = parts(&key);
        !self.0.is_empty()
            && self.0.iter().all(|fragment| {
                let number = fragment.starts_with(|c: char| c.is_ascii_digit());
                parts.any(|part| match number {
                    true => part == fragment,
                    false => part.starts_with(fragment.as_str()),
                })
            })
    }
}

/// Splits a text into runs of letters and runs of digits.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches(|c: char| !c.is_alphanumeric());
        let digit = rest.chars().next()?.is_ascii_digit();
        let ends = |c: char| !c.is_alphanumeric() || c.is_ascii_digit() != digit;
        let (part, after) = rest.split_at(rest.find(ends).unwrap_or(rest.len()));
        rest = after;
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_begin_parts_in_order() {
        let key = "model.layers.3.mlp.up_proj.weight";
        for (word, expected) in [
            ("l3", true),
            ("L3UP", true),
            ("l3.up", true),
            ("lay3upproj", false),
            ("up_pr", true),
            ("3", true),
            ("l33", false),
            ("roj", false),
            ("up.l", false),
            ("", false),
        ] {
            assert_eq!(Fragments::new(word).match_key(key), expected, "{word}");
        }
    }
}
