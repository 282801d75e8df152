//! Patterns of keys: `model.layers.{n}.mlp.up_proj.{wb}`.
//!
//! `{n}` is a number, `{wb}` is `weight` or `bias`; both sides of a rule have the same holes.
//! `[q,k,v]` and `[0..E]` are groups of keys that are converted together.

use std::collections::HashSet;

use crate::expression::Expression;

#[derive(Debug, Clone)]
pub struct KeyPattern {
    text: String,
    tokens: Vec<Token>,
}

#[derive(Debug, Clone)]
enum Token {
    Literal(String),
    Hole { name: String, class: HoleClass, factor: u64 },
    Group(KeyGroup),
}

/// A group of keys that are converted together.
#[derive(Debug, Clone)]
pub enum KeyGroup {
    /// `[q,k,v]`.
    Names(Vec<String>),
    /// `[0..E]`, with the number of keys.
    Count(Expression),
}

/// The texts that can fill a hole.
#[derive(Debug, Clone)]
enum HoleClass {
    Digits,
    Any,
    Not(String),
    OneOf(Vec<String>),
}

/// The names of holes and the texts that fill them.
pub type Captures = Vec<(String, String)>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    pub captures: Captures,
    /// The index of the key in each group.
    pub members: Vec<usize>,
}

/// Holes with a predefined meaning: name, and the texts that can fill it.
const KNOWN: &[(&str, &str)] = &[
    ("n", "#"),
    ("i", "#"),
    ("any", "*"),
    ("wb", "weight|bias"),
    ("ed", "encoder|decoder"),
    ("bm", "masked_bias|bias"),
    ("be", "bert_encoder|bert"),
    ("mp", "model.|"),
    ("dw", ".weight|"),
];

/// Limit on holes and groups, more than any key has parts.
const MAX_TOKENS: usize = 64;
/// Limit on groups in a key: one for the experts, one for their parts.
const MAX_GROUPS: usize = 2;
/// Limit on holes that match anything; each multiplies the time for matching by the length of the
/// key.
const MAX_ANY: usize = 3;

impl KeyPattern {
    /// Parses a pattern; the error is a message for the user.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut tokens = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let close = match first {
                '{' => '}',
                '[' => ']',
                '}' | ']' => return Err(format!("`{first}` in `{text}` closes nothing")),
                other => {
                    literal.push(other);
                    rest = &rest[other.len_utf8()..];
                    continue;
                }
            };
            let end =
                rest.find(close).ok_or_else(|| format!("`{first}` in `{text}` is not closed"))?;
            if !literal.is_empty() {
                tokens.push(Token::Literal(std::mem::take(&mut literal)));
            }
            let inside = &rest[1..end];
            tokens.push(if first == '{' { hole(inside)? } else { Token::Group(group(inside)?) });
            rest = &rest[end + 1..];
        }
        if !literal.is_empty() {
            tokens.push(Token::Literal(literal));
        }
        let groups = tokens.iter().filter(|token| matches!(token, Token::Group(_))).count();
        let any = tokens.iter().filter(|token| {
            matches!(token, Token::Hole { class: HoleClass::Any | HoleClass::Not(_), .. })
        });
        if tokens.is_empty() {
            return Err("a key is empty".to_owned());
        }
        if tokens.len() > MAX_TOKENS || groups > MAX_GROUPS || any.count() > MAX_ANY {
            return Err(format!(
                "`{text}` has too many holes: {MAX_GROUPS} [groups], {MAX_ANY} of {{any}} at most"
            ));
        }
        Ok(Self { text: text.to_owned(), tokens })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the groups. With two groups, each member of the first is combined with all members
    /// of the second.
    pub fn groups(&self) -> impl Iterator<Item = &KeyGroup> {
        self.tokens.iter().filter_map(|token| match token {
            Token::Group(group) => Some(group),
            _ => None,
        })
    }

    pub fn holes(&self) -> impl Iterator<Item = &str> {
        self.tokens.iter().filter_map(|token| match token {
            Token::Hole { name, .. } => Some(&**name),
            _ => None,
        })
    }

    pub fn matches(&self, key: &str) -> Option<Match> {
        let mut found = Match { captures: Vec::new(), members: Vec::new() };
        let mut tried = Tried { tokens: &self.tokens, key, failed: HashSet::new() };
        tried.fits(0, 0, &mut found).then_some(found)
    }

    /// Returns the key with these captures. `members` selects the member of each group, the first
    /// by default.
    pub fn fill(&self, captures: &Captures, members: &[usize]) -> String {
        let mut key = String::new();
        let mut members = members.iter().copied();
        for token in &self.tokens {
            match token {
                Token::Literal(literal) => key.push_str(literal),
                Token::Hole { name, factor, .. } => {
                    let text = captures.iter().find(|(own, _)| own == name);
                    let text = text.map_or("", |(_, text)| text);
                    match (*factor, text.parse::<u64>()) {
                        (1, _) | (_, Err(_)) => key.push_str(text),
                        (factor, Ok(number)) => {
                            key.push_str(&number.saturating_mul(factor).to_string());
                        }
                    }
                }
                Token::Group(KeyGroup::Names(names)) => {
                    let member = members.next().unwrap_or(0);
                    key.push_str(names.get(member).map_or("", |name| name));
                }
                Token::Group(KeyGroup::Count(_)) => {
                    key.push_str(&members.next().unwrap_or(0).to_string());
                }
            }
        }
        key
    }

    /// Removes `prefix` from the start; returns the pattern unchanged if it doesn't start with it.
    pub fn without_prefix(&self, prefix: &str) -> Self {
        let mut tokens = self.tokens.clone();
        let stripped = match tokens.first_mut() {
            Some(Token::Literal(literal)) => literal.strip_prefix(prefix).map(str::to_owned),
            _ => None,
        };
        let Some(stripped) = stripped else { return self.clone() };
        tokens[0] = Token::Literal(stripped);
        Self { text: self.text[prefix.len()..].to_owned(), tokens }
    }
}

/// A key that is matched against tokens. Failed positions are remembered, so that the time depends
/// on the key's length and not on the number of ways to fill the holes.
struct Tried<'a> {
    tokens: &'a [Token],
    key: &'a str,
    /// Pairs of token and byte index from which the rest does not match.
    failed: HashSet<(usize, usize)>,
}

impl Tried<'_> {
    /// Returns whether the rest of the tokens matches the rest of the key. Recurses once per token.
    fn fits(&mut self, at: usize, from: usize, found: &mut Match) -> bool {
        let (tokens, key) = (self.tokens, &self.key[from..]);
        let Some(token) = tokens.get(at) else { return key.is_empty() };
        if self.failed.contains(&(at, from)) {
            return false;
        }
        let fits = match token {
            Token::Literal(literal) => {
                key.starts_with(literal.as_str()) && self.fits(at + 1, from + literal.len(), found)
            }
            Token::Hole { name, class, factor } => {
                let mut try_with = |len: usize| {
                    let text = match (*factor, key[..len].parse::<u64>()) {
                        (1, _) | (_, Err(_)) => key[..len].to_owned(),
                        (factor, Ok(number)) => (number / factor).to_string(),
                    };
                    found.captures.push((name.clone(), text));
                    self.fits(at + 1, from + len, found) || {
                        found.captures.pop();
                        false
                    }
                };
                match class {
                    HoleClass::OneOf(all) => all
                        .iter()
                        .filter(|one| key.starts_with(one.as_str()))
                        .any(|one| try_with(one.len())),
                    HoleClass::Digits => {
                        let digits = key.bytes().take_while(u8::is_ascii_digit).count();
                        digits > 0 && try_with(digits)
                    }
                    HoleClass::Not(prefix) if key.starts_with(prefix.as_str()) => false,
                    HoleClass::Any | HoleClass::Not(_) => {
                        (0..=key.len()).rev().filter(|len| key.is_char_boundary(*len)).any(try_with)
                    }
                }
            }
            Token::Group(group) => {
                let mut try_with = |member: usize, len: usize| {
                    found.members.push(member);
                    self.fits(at + 1, from + len, found) || {
                        found.members.pop();
                        false
                    }
                };
                match group {
                    KeyGroup::Names(names) => names.iter().enumerate().any(|(member, name)| {
                        key.starts_with(name.as_str()) && try_with(member, name.len())
                    }),
                    KeyGroup::Count(_) => {
                        let digits = key.bytes().take_while(u8::is_ascii_digit).count();
                        key[..digits].parse().is_ok_and(|member| try_with(member, digits))
                    }
                }
            }
        };
        if !fits && at > 0 {
            self.failed.insert((at, from));
        }
        fits
    }
}

fn hole(inside: &str) -> Result<Token, String> {
    let (factor, inside) = match inside.split_once('*') {
        Some((factor, name)) if !factor.is_empty() && !factor.contains(':') => {
            let factor = factor.parse().ok().filter(|factor| (1..1000).contains(factor));
            (factor.ok_or_else(|| format!("`{{{inside}}}` is not a number times a hole"))?, name)
        }
        _ => (1, inside),
    };
    let (name, class) = match inside.split_once(':') {
        Some(own) => own,
        None => match KNOWN.iter().find(|(name, _)| *name == inside) {
            Some((name, class)) => (*name, *class),
            None => {
                let known: Vec<String> =
                    KNOWN.iter().map(|(name, _)| format!("{{{name}}}")).collect();
                return Err(format!(
                    "`{{{inside}}}` is not a known hole: expected {}, or {{name:one|other}}, \
                     {{name:#}} for a number, {{name:*}} for anything",
                    known.join(" ")
                ));
            }
        },
    };
    if name.is_empty() {
        return Err(format!("`{{{inside}}}` has no name"));
    }
    let class = match class {
        "#" => HoleClass::Digits,
        "*" => HoleClass::Any,
        class => match class.strip_prefix('!') {
            Some(prefix) => HoleClass::Not(prefix.to_owned()),
            None => HoleClass::OneOf(class.split('|').map(str::to_owned).collect()),
        },
    };
    if factor != 1 && !matches!(class, HoleClass::Digits) {
        return Err(format!("`{{{inside}}}`: only numbers can be multiplied"));
    }
    Ok(Token::Hole { name: name.to_owned(), class, factor })
}

fn group(inside: &str) -> Result<KeyGroup, String> {
    match inside.strip_prefix("0..") {
        Some(count) => Ok(KeyGroup::Count(Expression::parse(count)?)),
        None => {
            let names: Vec<String> = inside.split(',').map(|name| name.trim().to_owned()).collect();
            match names.len() < 2 || names.iter().any(String::is_empty) {
                true => Err(format!("`[{inside}]` is not a group: expected [q,k,v] or [0..N]")),
                false => Ok(KeyGroup::Names(names)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> KeyPattern {
        KeyPattern::parse(text).unwrap()
    }

    fn moved(from: &str, to: &str, key: &str) -> Option<String> {
        let found = pattern(from).matches(key)?;
        Some(pattern(to).fill(&found.captures, &found.members))
    }

    #[test]
    fn fills_holes_on_the_other_side() {
        let there = |key| moved("h.{n}.ln_1.{wb}", "layers.{n}.norm1.{wb}", key);
        assert_eq!(there("h.12.ln_1.bias").as_deref(), Some("layers.12.norm1.bias"));
        assert_eq!(there("h.12.ln_1.gamma"), None);
        assert_eq!(there("h..ln_1.bias"), None);
        assert_eq!(there("xh.1.ln_1.bias"), None);
        assert_eq!(moved("{any}", "a.{any}", "b.c").as_deref(), Some("a.b.c"));
        assert_eq!(moved("{mp}x{dw}", "{mp}y{dw}", "model.x").as_deref(), Some("model.y"));
        assert_eq!(moved("{rest:!model.}", "{rest:!model.}", "model.x"), None);
        assert_eq!(moved("p.{2*n}.w", "f.{n}.w", "p.4.w").as_deref(), Some("f.2.w"));
        assert_eq!(moved("f.{n}.w", "p.{2*n}.w", "f.2.w").as_deref(), Some("p.4.w"));
    }

    #[test]
    fn groups_identify_the_key() {
        let qkv = pattern("a.[q,k,v].{wb}");
        assert_eq!(qkv.matches("a.k.bias").unwrap().members, [1]);
        assert_eq!(qkv.fill(&vec![("wb".into(), "bias".into())], &[2]), "a.v.bias");
        assert_eq!(pattern("experts.[0..8].w").matches("experts.11.w").unwrap().members, [11]);
        let both = pattern("experts.[0..8].[up,gate].w");
        assert_eq!(both.matches("experts.3.gate.w").unwrap().members, [3, 1]);
        assert_eq!(both.fill(&Vec::new(), &[5, 0]), "experts.5.up.w");
        assert_eq!(both.matches("experts.3.down.w"), None);
    }

    #[test]
    fn ambiguous_patterns_end_quickly() {
        // Trying all ways to fill these holes would take forever.
        let holes: String = (0..40).map(|n| format!("{{h{n}:x|}}")).collect();
        assert!(pattern(&format!("a{holes}b")).matches(&format!("a{}", "x".repeat(60))).is_none());
        let any = pattern("{any}-{any}-{any}y");
        assert!(any.matches(&"-".repeat(500)).is_none());
    }

    #[test]
    fn reports_invalid_patterns() {
        for (text, said) in [
            ("a.{n", "not closed"),
            ("a}", "closes nothing"),
            ("a.{layer}", "not a known hole"),
            ("[q]", "not a group"),
            ("[a,b].[c,d].[e,f]", "too many holes"),
            ("{any}{any}{any}{any}", "too many holes"),
        ] {
            let error = KeyPattern::parse(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
