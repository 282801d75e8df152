//! Words that match by the beginnings of the parts of a key: `l3 up` for `layers.3.mlp.up_proj`.

/// The fragments of a word, in order: letters that a part of the key begins with, alone or with the
/// next parts of letters (`qproj` for `q_proj`), and whole numbers.
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
        let parts: Vec<&str> = parts(&key).collect();
        let mut rest = &parts[..];
        !self.0.is_empty()
            && self.0.iter().all(|fragment| {
                let found = (0..rest.len()).find_map(|at| Some(at + begun(&rest[at..], fragment)?));
                rest = found.map_or(&[], |end| &rest[end..]);
                found.is_some()
            })
    }
}

/// Returns how many parts begin with a fragment, taken together; `None` if they don't.
fn begun(parts: &[&str], fragment: &str) -> Option<usize> {
    let number = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    if number(fragment) {
        return (parts.first() == Some(&fragment)).then_some(1);
    }
    let mut rest = fragment;
    for (at, part) in parts.iter().enumerate() {
        if part.starts_with(rest) {
            return Some(at + 1);
        }
        rest = rest.strip_prefix(part).filter(|_| !number(part))?;
    }
    None
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
            ("upproj", true),
            ("l3upproj", true),
            ("lay3upproj", true),
            ("uproj", false),
            ("mlpup", true),
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
