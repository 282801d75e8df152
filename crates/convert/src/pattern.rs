//! Patterns for keys.

use regex_lite::Regex;
use statelens_checkpoint::{Error, Result, known_key};

use crate::glob::{Glob, GlobScope};

/// A pattern for flat keys: `/regular expression/`, found anywhere in the key, or else a glob that
/// must match the whole key, in which `*` matches anything, dots included, `?` one character,
/// `[0-3x]` one of these, `[!x]` any other, and `{a,b}` either. A key that equals the pattern
/// always matches, because keys may contain brackets.
#[derive(Debug, Clone)]
pub struct Pattern {
    text: String,
    matcher: Matcher,
}

#[derive(Debug, Clone)]
enum Matcher {
    Glob(Glob),
    /// A glob with classes or alternatives, as a regular expression.
    Choices(Regex),
    Regex(Regex),
}

impl Pattern {
    /// Parses patterns; fails as [`Pattern::parse`] does.
    pub fn all(texts: &[String]) -> Result<Vec<Self>> {
        texts.iter().map(|text| Self::parse(text)).collect()
    }

    /// Parses a pattern; fails if the text between slashes is not a regular expression.
    pub fn parse(text: &str) -> Result<Self> {
        let inner = text.strip_prefix('/').and_then(|text| text.strip_suffix('/'));
        let matcher = match inner {
            Some(expression) => Matcher::Regex(Regex::new(expression).map_err(|error| {
                Error::refused(format!("{text} is not a regular expression: {error}"))
                    .advice("Without slashes it is a glob: `*` matches anything.")
            })?),
            None => match choices(text) {
                Some(expression) => Matcher::Choices(Regex::new(&expression).map_err(|error| {
                    Error::refused(format!("{text} is not a valid pattern: {error}"))
                        .advice("Classes are written [0-9] and [!0-9], alternatives {a,b}.")
                })?),
                None => Matcher::Glob(Glob::new(text, GlobScope::Key)),
            },
        };
        Ok(Self { text: text.to_owned(), matcher })
    }

    /// Returns whether a flat key matches.
    pub fn matches(&self, key: &str) -> bool {
        match &self.matcher {
            Matcher::Glob(glob) => glob.matches(key),
            Matcher::Choices(regex) => key == self.text || regex.is_match(key),
            Matcher::Regex(regex) => regex.is_match(key),
        }
    }

    /// Returns whether a flat key matches, or the short key by which it is known.
    pub fn selects(&self, key: &str) -> bool {
        self.matches(key) || self.matches(known_key(key))
    }

    /// Returns whether one of the patterns selects a flat key, or there are no patterns.
    pub fn any_selects(patterns: &[Self], key: &str) -> bool {
        patterns.is_empty() || patterns.iter().any(|pattern| pattern.selects(key))
    }

    /// Returns the pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl std::str::FromStr for Pattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

/// Returns the regular expression for a glob with classes or alternatives; `None` if it has
/// neither, so that it is matched character by character. A bracket without its partner is literal,
/// and so are braces without a comma between them.
fn choices(glob: &str) -> Option<String> {
    let glob: Vec<char> = glob.chars().collect();
    let braces = braces(&glob);
    let mut out = String::from("^(?s:");
    let mut special = false;
    let mut at = 0;
    while let Some(&c) = glob.get(at) {
        if c == '['
            && let Some((class, len)) = class(&glob[at..])
        {
            out.push_str(&class);
            special = true;
            at += len;
            continue;
        }
        match (c, braces.get(at).copied().flatten()) {
            ('*', _) => out.push_str(".*"),
            ('?', _) => out.push('.'),
            (_, Some(replacement)) => {
                out.push_str(replacement);
                special = true;
            }
            (c, None) => push_literal(&mut out, c),
        }
        at += 1;
    }
    out.push_str(")$");
    special.then_some(out)
}

/// Returns for each character its translation if it is a brace or comma of alternatives.
fn braces(glob: &[char]) -> Vec<Option<&'static str>> {
    let mut marks = vec![None; glob.len()];
    let mut open: Vec<(usize, Vec<usize>)> = Vec::new();
    for (at, c) in glob.iter().enumerate() {
        match c {
            '{' => open.push((at, Vec::new())),
            ',' => open.iter_mut().rev().take(1).for_each(|(_, commas)| commas.push(at)),
            '}' => {
                let Some((start, commas)) = open.pop() else { continue };
                if commas.is_empty() {
                    continue;
                }
                marks[start] = Some("(?:");
                marks[at] = Some(")");
                commas.into_iter().for_each(|comma| marks[comma] = Some("|"));
            }
            _ => {}
        }
    }
    marks
}

/// Returns the class at the start of a glob as a regular expression, and its length in characters.
fn class(glob: &[char]) -> Option<(String, usize)> {
    let negated = matches!(glob.get(1), Some('!' | '^'));
    let first = if negated { 2 } else { 1 };
    // A bracket that comes first is one of the characters.
    let end = (first + 1..glob.len()).find(|at| glob[*at] == ']')?;
    let mut out = String::from(if negated { "[^" } else { "[" });
    let mut at = first;
    while at < end {
        push_literal(&mut out, glob[at]);
        if glob[at + 1] == '-' && at + 2 < end {
            out.push('-');
            push_literal(&mut out, glob[at + 2]);
            at += 2;
        }
        at += 1;
    }
    out.push(']');
    Some((out, end + 1))
}

fn push_literal(out: &mut String, c: char) {
    if c.is_ascii_punctuation() {
        out.push('\\');
    }
    out.push(c);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_whole_keys() {
        for (glob, key, expected) in [
            ("*", "", true),
            ("*", "model.a.b", true),
            ("model.*", "model.a.b", true),
            ("model.*", "model", false),
            ("model", "model.a", false),
            ("*.bias", "a.b.bias", true),
            ("*.bias", "a.bias.b", false),
            ("*a*b?c*", "xxaxxbbaacz", false),
            ("*a*b?c*", "xxaxxbbcz", true),
            ("h.?.w", "h.1.w", true),
            ("h.?.w", "h.11.w", false),
            ("?", "é", true),
            ("", "", true),
            ("", "a", false),
            ("a**", "a", true),
            ("[ab]", "[ab]", true),
            ("[ab]", "a", true),
            ("[ab]", "ab", false),
            ("h.[0-1].*", "h.1.w", true),
            ("h.[0-1].*", "h.2.w", false),
            ("h.[!0-1].w", "h.2.w", true),
            ("h.[^0-1].w", "h.1.w", false),
            ("[]x]", "]", true),
            ("[-a]", "-", true),
            ("a[", "a[", true),
            ("a[b", "a[b", true),
            ("{a,b.c}.w", "b.c.w", true),
            ("{a,b}.w", "c.w", false),
            ("{a,{b,c}?}", "cx", true),
            ("{a}", "{a}", true),
            ("a,b", "a,b", true),
            ("{a,b", "{a,b", true),
            ("{,x.}w", "w", true),
            ("*.{k,v}_proj.*", "l.3.k_proj.weight", true),
            ("[.]+", ".+", true),
            ("[.]+", "..", false),
        ] {
            assert_eq!(Pattern::parse(glob).unwrap().matches(key), expected, "{glob} {key}");
        }
    }

    #[test]
    fn expressions_match_anywhere() {
        let pattern = Pattern::parse(r"/^h\.\d+\./").unwrap();
        assert!(pattern.matches("h.12.w"));
        assert!(!pattern.matches("x.h.12.w"));
        assert!(Pattern::parse("/(/").unwrap_err().to_string().contains("/(/"));
        // A single slash is not a pair.
        assert!(Pattern::parse("/").unwrap().matches("/"));
    }

    #[test]
    fn hostile_globs_match_quickly() {
        let pattern = Pattern::parse(&"*a".repeat(500)).unwrap();
        assert!(!pattern.matches(&("a".repeat(499) + &"b".repeat(20_000))));
        // Too many alternatives are refused, however deeply nested.
        let deep = "{".repeat(10_000) + "a" + &",b}".repeat(10_000);
        assert!(Pattern::parse(&deep).is_err());
        let pattern = Pattern::parse(&("*[a]".repeat(50) + "{b,c}")).unwrap();
        assert!(!pattern.matches(&"a".repeat(20_000)));
    }
}
