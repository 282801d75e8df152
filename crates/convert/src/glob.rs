//! Globs over keys.

use memchr::memmem::Finder;

/// A glob. `*` matches anything, dots included; [`GlobScope`] says what else.
#[derive(Debug, Clone)]
pub struct Glob {
    scope: GlobScope,
    /// The texts between the stars.
    parts: Vec<Between>,
}

/// What a glob has to match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GlobScope {
    /// The whole key. `?` matches any character.
    Key,
    /// Consecutive segments of the key: a match begins and ends at segment boundaries. `?` matches
    /// one character of a segment. Dots at the ends of the glob are ignored.
    Segments,
}

#[derive(Debug, Clone)]
struct Between {
    text: Finder<'static>,
    /// Whether it contains a `?`.
    open: bool,
}

impl Glob {
    /// Parses a glob; every text is valid.
    pub fn new(text: &str, scope: GlobScope) -> Self {
        let part =
            |text: &str| Between { text: Finder::new(text).into_owned(), open: text.contains('?') };
        let text = match scope {
            GlobScope::Key => text,
            GlobScope::Segments => text.trim_matches('.'),
        };
        Self { scope, parts: text.split('*').map(part).collect() }
    }

    /// Returns whether the key, or segments of it, match.
    pub fn matches(&self, key: &str) -> bool {
        let Some((last, before)) = self.parts.split_last() else { return true };
        // A star matches anything, so the first match of each part is as good as a later one; only
        // the last part has to end at a boundary.
        let mut from = 0;
        for (at, part) in before.iter().enumerate() {
            match part.place(self.scope, key, from, at == 0, false) {
                Some(end) => from = end,
                None => return false,
            }
        }
        last.place(self.scope, key, from, before.is_empty(), true).is_some()
    }
}

impl Between {
    /// Returns the end of the first match of this part at or after `from`.
    fn place(
        &self,
        scope: GlobScope,
        key: &str,
        mut from: usize,
        begins: bool,
        ends: bool,
    ) -> Option<usize> {
        let bytes = key.as_bytes();
        let text = self.text.needle();
        let parts_segments =
            |at: usize| scope == GlobScope::Segments && matches!(bytes[at], b'.' | b'/');
        if text.is_empty() {
            let is_whole = scope == GlobScope::Key && begins && ends;
            return (!is_whole || key.is_empty()).then_some(if ends { key.len() } else { from });
        }
        while from < key.len() {
            let start = if self.open { from } else { from + self.text.find(&bytes[from..])? };
            from = start + 1;
            if !key.is_char_boundary(start) || begins && start > 0 && !parts_segments(start - 1) {
                continue;
            }
            if let Some(end) = end_of(scope, bytes, start, text)
                && (!ends || end == bytes.len() || parts_segments(end))
            {
                return Some(end);
            }
        }
        None
    }
}

/// Returns the end of a match of a part at `at`.
fn end_of(scope: GlobScope, key: &[u8], mut at: usize, part: &[u8]) -> Option<usize> {
    for &wanted in part {
        let &found = key.get(at)?;
        at += 1;
        if wanted == b'?' {
            if scope == GlobScope::Segments && matches!(found, b'.' | b'/') {
                return None;
            }
            // The remaining bytes of a multi-byte character.
            while key.get(at).is_some_and(|byte| byte & 0xc0 == 0x80) {
                at += 1;
            }
        } else if wanted != found {
            return None;
        }
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_like_regular_expressions() {
        let expression = |glob: &str, scope| {
            let (begin, end, one, glob) = match scope {
                GlobScope::Key => ("(?s)^", "$", ".", glob),
                GlobScope::Segments => {
                    ("(?s)(?:^|[./])", "(?:[./]|$)", "[^./]", glob.trim_matches('.'))
                }
            };
            let mut out = String::from(begin);
            for c in glob.chars() {
                match c {
                    '*' => out.push_str(".*"),
                    '?' => out.push_str(one),
                    c if c.is_alphanumeric() || c == '_' => out.push(c),
                    c => out.extend(['\\', c]),
                }
            }
            regex_lite::Regex::new(&(out + end)).unwrap()
        };
        let keys = [
            "",
            "a",
            "a.b",
            "a.b.c",
            "ab.ba.a",
            "model.layers.10.attn.q_proj.weight",
            "model.layers.1.attn.weight",
            "model.layers.1.attn.weights",
            "net/dense_1/kernel",
            "global_step",
            "übung.é.x",
            "a..b",
            ".a.",
            "aab.aabaab",
            "a(b.c",
        ];
        let globs = [
            "*",
            "**",
            "?",
            "??",
            "a*",
            "*a",
            "*.b",
            "a.*",
            "a*b",
            "*a*b*",
            "?.?",
            "a.?.c",
            "layers.*.weight",
            "layers.?.attn*",
            "*attn.*weight",
            "*.weight",
            "dense_?",
            "*_step",
            "?bung",
            "?bung.*",
            "global_ste?",
            "a(b*",
            "*aab",
            "*.",
            "a?b",
            "*b.a*",
            "l*",
        ];
        for (glob, scope) in globs
            .into_iter()
            .flat_map(|glob| [GlobScope::Key, GlobScope::Segments].map(|scope| (glob, scope)))
        {
            let (ours, expression) = (Glob::new(glob, scope), expression(glob, scope));
            for key in keys {
                let matched = expression.is_match(key);
                assert_eq!(ours.matches(key), matched, "{glob} on {key} with {scope:?}");
            }
        }
    }
}
