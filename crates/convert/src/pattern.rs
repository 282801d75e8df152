//! Patterns for keys.

use regex_lite::Regex;
use statelens_checkpoint::{Error, Result};

/// A pattern for flat keys: `/regular expression/`, found anywhere in the key, or else a glob
/// that must match the whole key, in which `*` stands for anything, dots included, and `?` for
/// one character.
#[derive(Debug, Clone)]
pub struct Pattern {
    text: String,
    matcher: Matcher,
}

#[derive(Debug, Clone)]
enum Matcher {
    Glob(Vec<char>),
    Regex(Regex),
}

impl Pattern {
    /// Understands a pattern; fails if what stands between slashes is no regular expression.
    pub fn parse(text: &str) -> Result<Self> {
        let inner = text.strip_prefix('/').and_then(|text| text.strip_suffix('/'));
        let matcher = match inner {
            Some(expression) => Matcher::Regex(Regex::new(expression).map_err(|error| {
                Error::refused(format!("{text} is not a regular expression: {error}"))
                    .advice("Without slashes it is a glob: `*` matches anything.")
            })?),
            None => Matcher::Glob(text.chars().collect()),
        };
        Ok(Self { text: text.to_owned(), matcher })
    }

    /// Whether a flat key matches.
    pub fn matches(&self, key: &str) -> bool {
        match &self.matcher {
            Matcher::Glob(glob) => glob_matches(glob, key),
            Matcher::Regex(regex) => regex.is_match(key),
        }
    }

    /// The pattern as it was written.
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

/// Goes back to the last `*` only, which is enough: an earlier one could not match more. So it
/// takes at most the product of both lengths.
fn glob_matches(glob: &[char], key: &str) -> bool {
    let mut rest = key.chars();
    let mut at = 0;
    let mut retry: Option<(usize, std::str::Chars<'_>)> = None;
    loop {
        if glob.get(at) == Some(&'*') {
            at += 1;
            retry = Some((at, rest.clone()));
            continue;
        }
        let here = rest.clone().next();
        match (glob.get(at), here) {
            (None, None) => return true,
            (Some(wanted), Some(found)) if *wanted == '?' || *wanted == found => {
                at += 1;
                rest.next();
                continue;
            }
            _ => {}
        }
        let Some((after, from)) = &mut retry else { return false };
        if from.next().is_none() {
            return false;
        }
        at = *after;
        rest = from.clone();
    }
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
        // A single slash is no pair.
        assert!(Pattern::parse("/").unwrap().matches("/"));
    }

    #[test]
    fn hostile_globs_take_no_time() {
        let pattern = Pattern::parse(&"*a".repeat(500)).unwrap();
        assert!(!pattern.matches(&("a".repeat(499) + &"b".repeat(20_000))));
    }
}
