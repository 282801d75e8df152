//! The filter box: words, globs, `/regex/`, `dtype:`, `shape:`, `kind:`, `state:`, `bytes>`; and,
//! once values were read, `nan>0`, `std<1e-6`, `absmax>100`, `zeros>50%`.
//!
//! Terms are separated by spaces and must all hold; `-` or `!` before a term negates it. A word matches a
//! part of the key, ignoring case unless the word has a capital; a number in it is a whole number of
//! the key. A glob matches whole segments, so that `layers.*.attn` and `*.weight` mean what they look
//! like. If nothing is found, [`Filter::loosened`] searches for words more loosely.

mod fragments;
pub mod search;

use regex_lite::Regex;
use statelens_checkpoint::order;
use statelens_convert::{Glob, GlobScope};
use statelens_describe::distance;
use statelens_values::{Comparison, Condition, StatisticsField, SummaryStatistics};

use crate::filter::state::fragments::Fragments;
use crate::rows::{LeafKind, Row};
use crate::state::dtype::is_short;

#[derive(Debug, Clone, Default)]
pub struct Filter {
    terms: Vec<(bool, Term)>,
}

#[derive(Debug, Clone)]
enum Term {
    Word(Word),
    Fragments(Fragments),
    Glob(Glob),
    Pattern(Regex),
    Dtype(String),
    Kind(KindTerm),
    State(String),
    Shape(Vec<Dim>),
    Size { params: bool, order: Comparison, limit: u64 },
    Values(Condition),
}

/// A part of a key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Word {
    pub(crate) text: String,
    fold_case: bool,
    /// Whether a digit at either end is the end of a number of the key.
    pub(crate) whole_numbers: bool,
}

/// Returns whether the part of a key from `start` to `end` does not cut a number in two.
pub(crate) fn is_whole(key: &[u8], start: usize, end: usize) -> bool {
    let digit = |at: usize| key.get(at).is_some_and(u8::is_ascii_digit);
    let cut = |at: usize| at > 0 && digit(at - 1) && digit(at);
    !cut(start) && !cut(end)
}

impl Word {
    fn matches(&self, key: &str) -> bool {
        if !self.fold_case {
            return key
                .match_indices(self.text.as_str())
                .any(|(at, _)| self.fits(key.as_bytes(), at, at + self.text.len()));
        }
        if key.is_ascii() && self.text.is_ascii() {
            let (key, part) = (key.as_bytes(), self.text.as_bytes());
            return part.is_empty()
                || key.windows(part.len()).enumerate().any(|(at, window)| {
                    window.eq_ignore_ascii_case(part) && self.fits(key, at, at + part.len())
                });
        }
        let key = key.to_lowercase();
        key.match_indices(self.text.as_str())
            .any(|(at, _)| self.fits(key.as_bytes(), at, at + self.text.len()))
    }

    fn fits(&self, key: &[u8], start: usize, end: usize) -> bool {
        !self.whole_numbers || is_whole(key, start, end)
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum KindTerm {
    Tensor,
    Value,
    Link,
    Only(LeafKind),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Dim {
    Exactly(u64),
    Any,
    AnyMany,
}

impl Filter {
    /// Parses the text of the box.
    ///
    /// # Errors
    /// A sentence that names the invalid term, and what would be valid.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut terms = Vec::new();
        for word in joined(words(text)) {
            let (negative, word) = match word.strip_prefix(NEGATIONS) {
                Some(rest) if !rest.is_empty() => (true, rest),
                _ => (false, word.as_str()),
            };
            terms.push((negative, term(word)?));
        }
        // Cheap terms go first, so that few rows reach the regular expressions.
        order::by_key(&mut terms, |(_, term)| matches!(term, Term::Pattern(_)));
        Ok(Self { terms })
    }

    /// Suggests what may have been meant when nothing is found: operators such as `OR`, and words
    /// that look like a term but are not one, are searched for, since keys may contain them.
    pub fn hint(text: &str) -> Option<String> {
        if let Some(hint) = operator_hint(&words(text)) {
            return Some(hint);
        }
        let unknown = UnknownTerm::of(text)?;
        let name = &text[unknown.start..unknown.end];
        Some(format!(
            "\u{2018}{name}\u{2019} is not a filter, so keys were searched for it. Filters are {}.",
            TERMS.join(", ")
        ))
    }

    /// Returns true if every row passes.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Returns true if a row passes whose values were not read.
    pub fn matches(&self, row: &Row) -> bool {
        self.passes(row, None)
    }

    /// Returns true if a row passes. Terms about values reject rows that were not read.
    pub fn passes(&self, row: &Row, values: Option<&SummaryStatistics>) -> bool {
        self.terms.iter().all(|(negative, term)| match term {
            Term::Values { .. } if values.is_none() => false,
            term => term.matches(row, values) != *negative,
        })
    }

    /// Returns true if a term is about values.
    pub fn is_of_values(&self) -> bool {
        self.terms.iter().any(|(_, term)| matches!(term, Term::Values { .. }))
    }

    /// Returns a filter whose words match more keys, for when nothing is found: first ignoring case,
    /// with numbers cut short (`step` 0); then (1) by the beginnings of the parts of a key, as `l3 up`
    /// for `layers.3.mlp.up_proj`. Returns `None` if no word can be loosened further.
    pub fn loosened(mut self, step: u32) -> Option<Self> {
        let mut changed = false;
        for (negative, term) in &mut self.terms {
            let Term::Word(word) = term else { continue };
            if *negative {
                continue;
            }
            let next = match step {
                0 => Term::Word(Word {
                    text: word.text.to_lowercase(),
                    fold_case: true,
                    whole_numbers: false,
                }),
                1 => Term::Fragments(Fragments::new(&word.text)),
                _ => return None,
            };
            changed |= !matches!(&next, Term::Word(next) if next == word);
            *term = next;
        }
        changed.then_some(self)
    }

    /// Removes and returns the words that are matched ignoring case, each with whether it is
    /// negated.
    pub(crate) fn take_words(&mut self) -> Vec<(bool, Word)> {
        let mut words = Vec::new();
        self.terms.retain(|(negative, term)| match term {
            Term::Word(word) if word.fold_case && !word.text.contains('\n') => {
                words.push((*negative, word.clone()));
                false
            }
            _ => true,
        });
        // Words that must be present go first, since they leave the fewest rows.
        order::by_key(&mut words, |(negative, _)| *negative);
        words
    }

    /// Returns true if a term is a regular expression: testing a row then takes microseconds.
    pub(crate) fn is_slow(&self) -> bool {
        self.terms.iter().any(|(_, term)| matches!(term, Term::Pattern(_)))
    }
}

impl Term {
    fn matches(&self, row: &Row, values: Option<&SummaryStatistics>) -> bool {
        match self {
            Self::Word(word) => word.matches(&row.key),
            Self::Fragments(fragments) => fragments.match_key(&row.key),
            Self::Glob(glob) => glob.matches(&row.key),
            Self::Pattern(pattern) => pattern.is_match(&row.key),
            Self::Dtype(name) => {
                row.dtype.eq_ignore_ascii_case(name)
                    || (!row.dtype.is_empty() && is_short(&row.dtype, name))
            }
            Self::Kind(KindTerm::Tensor) => row.kind.has_shape(),
            Self::Kind(KindTerm::Value) => !row.kind.has_shape(),
            Self::Kind(KindTerm::Link) => row.link.is_some(),
            Self::Kind(KindTerm::Only(kind)) => row.kind == *kind,
            Self::State(name) => row
                .key
                .strip_prefix(name.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '/'])),
            Self::Shape(dims) => row.kind.has_shape() && shape_matches(dims, &row.shape),
            Self::Size { params, order, limit } => {
                row.kind.has_shape()
                    && order.holds(if *params { row.params } else { row.bytes }, *limit)
            }
            Self::Values(condition) => values.is_some_and(|values| condition.holds_in(values)),
        }
    }
}

/// A word that looks like a term but is not one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownTerm {
    /// The offset of its name in the text.
    pub start: usize,
    /// The end of the name.
    pub end: usize,
    /// The name that may have been meant.
    pub suggestion: Option<&'static str>,
}

impl UnknownTerm {
    /// Finds the first one in a text.
    pub fn of(text: &str) -> Option<Self> {
        words(text).into_iter().find_map(|word| {
            // A word is a slice of the text.
            let start = word.as_ptr() as usize - text.as_ptr() as usize;
            let body = word.trim_start_matches(NEGATIONS);
            let start = start + word.len() - body.len();
            let (name, _) = body.split_once([':', '>', '<', '='])?;
            let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphabetic());
            let names = || {
                let terms = TERMS.iter().map(|term| term.trim_end_matches([':', '>']));
                terms.chain(MEASURES.iter().map(|(name, _)| *name))
            };
            let known = names().chain(["is", "size"]).any(|known| known.eq_ignore_ascii_case(name));
            if !is_name || known {
                return None;
            }
            let typed = name.to_ascii_lowercase();
            let near = |known: &'static str| Some((distance(known, &typed, 2)?, known));
            // Short names such as `std` and `abs` are within two edits of many words.
            let near = names().filter_map(near).filter(|(far, _)| far * 2 < typed.len());
            let suggestion = near.min_by_key(|(far, _)| *far).map(|(_, known)| known);
            Some(Self { start, end: start + name.len(), suggestion })
        })
    }
}

/// Returns the regular expression to write for `a OR b`, `a | b` or `a|b`, and says that `AND` is
/// not needed. `None` without such an operator.
fn operator_hint(words: &[&str]) -> Option<String> {
    let is_plain = |word: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.')
    };
    let either = |left: &str, right: &str| {
        let pair = (is_plain(left) && is_plain(right)).then(|| format!("/{left}|{right}/"));
        let pattern = pair.unwrap_or_else(|| "/one|other/".to_owned()).replace('.', r"\.");
        format!("All terms must match. To match either of two, write {pattern}.")
    };
    words.iter().enumerate().find_map(|(at, word)| {
        let around = || Some((words.get(at.checked_sub(1)?)?, words.get(at + 1)?));
        match *word {
            "OR" | "or" | "|" | "||" => around().map(|(left, right)| either(left, right)),
            "AND" | "and" | "&" | "&&" => around()
                .map(|_| format!("All terms must match, so leave out \u{2018}{word}\u{2019}.")),
            _ if word.starts_with('/') => None,
            _ => word
                .split_once('|')
                .map(|(left, right)| either(left, right.trim_start_matches('|'))),
        }
    })
}

/// Characters that negate the term after them.
const NEGATIONS: [char; 2] = ['-', '!'];

/// The terms that have a name.
const TERMS: [&str; 6] = ["dtype:", "kind:", "state:", "shape:", "bytes>", "params>"];

/// The terms about values.
const MEASURES: [(&str, StatisticsField); 9] = [
    ("std", StatisticsField::Std),
    ("\u{3c3}", StatisticsField::Std),
    ("absmax", StatisticsField::AbsMax),
    ("min", StatisticsField::Min),
    ("max", StatisticsField::Max),
    ("mean", StatisticsField::Mean),
    ("zeros", StatisticsField::Zeros),
    ("nan", StatisticsField::Nan),
    ("inf", StatisticsField::Inf),
];

fn measure(name: &str) -> Option<StatisticsField> {
    let known = MEASURES.iter().find(|(known, _)| name.eq_ignore_ascii_case(known));
    known.map(|(_, measure)| *measure)
}

/// Joins words that form one comparison: `bytes > 10 kB`.
fn joined(words: Vec<&str>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for word in words {
        let continues = all.last().is_some_and(|before| {
            let before = before.trim_start_matches(NEGATIONS);
            let rest =
                ["bytes", "size", "params"].iter().find_map(|name| before.strip_prefix(name));
            let rest = rest.or_else(|| {
                MEASURES
                    .iter()
                    .find_map(|(name, _)| before.strip_prefix(name))
                    .filter(|rest| rest.is_empty() || rest.starts_with(['<', '>', '=']))
            });
            rest.is_some_and(|rest| {
                let number = rest.trim_start_matches(['<', '>', '=']);
                let has_order = number.len() < rest.len();
                let starts = |of: fn(char) -> bool| word.starts_with(of);
                match (has_order, number.is_empty()) {
                    (false, true) => starts(|c| matches!(c, '<' | '>' | '=')),
                    (true, true) => starts(|c| c.is_ascii_digit()),
                    (true, false) => {
                        number.ends_with(|c: char| c.is_ascii_digit()) && is_unit(word)
                    }
                    (false, false) => false,
                }
            })
        });
        match all.last_mut().filter(|_| continues) {
            Some(before) => before.push_str(word),
            None => all.push(word.to_owned()),
        }
    }
    all
}

fn is_unit(word: &str) -> bool {
    unit(&word.to_ascii_lowercase()).is_some()
}

/// Returns the factor of a unit in lower case: `""`, `k`, `mb`, `gib`.
fn unit(word: &str) -> Option<f64> {
    let (prefix, base) = match word.strip_suffix("ib") {
        Some(prefix) if !prefix.is_empty() => (prefix, 1024.0f64),
        _ => (word.strip_suffix('b').unwrap_or(word), 1000.0),
    };
    let power = ["", "k", "m", "g", "t", "p"].iter().position(|known| *known == prefix)?;
    Some(base.powi(power as i32))
}

/// Splits at spaces that are not inside `/…/`, `[…]` or the parentheses of a shape.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let body = rest.strip_prefix(NEGATIONS).unwrap_or(rest);
        let brackets: [&[char]; 2] = match body.starts_with("shape:(") {
            true => [&['[', '('], &[']', ')']],
            false => [&['['], &[']']],
        };
        let skip = rest.len() - body.len();
        let end = if body.starts_with('/') {
            skip + end_of_pattern(body)
        } else {
            let mut depth = 0i32;
            rest.char_indices()
                .find(|&(_, c)| {
                    depth +=
                        i32::from(brackets[0].contains(&c)) - i32::from(brackets[1].contains(&c));
                    c.is_whitespace() && depth <= 0
                })
                .map_or(rest.len(), |(at, _)| at)
        };
        words.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    words
}

/// Returns the end of a `/regex/`: after its closing slash, or the end of the text while it is
/// being typed.
fn end_of_pattern(text: &str) -> usize {
    let mut escaped = true;
    for (at, c) in text.char_indices() {
        if c == '/' && !escaped {
            return at + 1;
        }
        escaped = at == 0 || (c == '\\' && !escaped);
        if at == 0 {
            escaped = false;
        }
    }
    text.len()
}

fn term(word: &str) -> Result<Term, String> {
    if let Some(body) = word.strip_prefix('/') {
        let body = body.strip_suffix('/').unwrap_or(body);
        return Regex::new(body)
            .map(Term::Pattern)
            .map_err(|error| format!("/{body}/ is not a regular expression: {error}"));
    }
    for (name, params) in [("bytes", false), ("size", false), ("params", true)] {
        if let Some(rest) = word.strip_prefix(name)
            && let Some((order, limit)) = Comparison::strip(rest)
        {
            let limit = quantity(limit).ok_or_else(|| {
                format!("\u{2018}{word}\u{2019} needs a number, as in {name}>100MB")
            })?;
            return Ok(Term::Size { params, order, limit });
        }
    }
    if let Some(at) = word.find(['<', '>', '='])
        && let Some(measure) = measure(&word[..at])
        && let Some((order, limit)) = Comparison::strip(&word[at..])
    {
        let (limit, share) = match limit.strip_suffix('%') {
            Some(part) => (part, true),
            None => (limit, false),
        };
        let limit = limit.parse::<f64>().ok().filter(|limit| limit.is_finite());
        let condition = limit.and_then(|limit| Condition::new(measure, order, limit, share));
        return condition.map(Term::Values).ok_or_else(|| {
            let example = if measure.counts() { "50% or 1000" } else { "1e-6" };
            format!("\u{2018}{word}\u{2019} needs a number, as in {}>{example}", &word[..at])
        });
    }
    if let Some((name, text)) = word.split_once(':') {
        match name {
            "dtype" => {
                let text = text.strip_prefix("torch.").unwrap_or(text);
                return Ok(Term::Dtype(text.to_lowercase()));
            }
            "kind" | "is" => return kind(text),
            "state" => return Ok(Term::State(text.to_owned())),
            "shape" => {
                return shape(text).map(Term::Shape).ok_or_else(|| {
                    format!("\u{2018}{text}\u{2019} is not a shape; write shape:[4096,*]")
                });
            }
            _ => {}
        }
    }
    if word.contains(['*', '?']) {
        return Ok(Term::Glob(Glob::new(word, GlobScope::Segments)));
    }
    let fold_case = !word.chars().any(char::is_uppercase);
    Ok(Term::Word(Word { text: word.to_owned(), fold_case, whole_numbers: true }))
}

fn kind(text: &str) -> Result<Term, String> {
    let term = match text.to_lowercase().as_str() {
        "tensor" | "tensors" => KindTerm::Tensor,
        "value" | "values" => KindTerm::Value,
        "link" | "links" | "alias" => KindTerm::Link,
        "array" => KindTerm::Only(LeafKind::Array),
        word => {
            // Rows of sparse tensors are tensors.
            let known = LeafKind::named(word).filter(|kind| *kind != LeafKind::Sparse);
            KindTerm::Only(known.ok_or_else(|| {
                format!(
                    "\u{2018}{text}\u{2019} is not a kind; kinds are tensor, value, link, int, float, str \u{2026}"
                )
            })?)
        }
    };
    Ok(Term::Kind(term))
}

/// Parses a number with a unit: `100MB`, `1.5k`, `4096`, `1GiB`.
fn quantity(text: &str) -> Option<u64> {
    let text = text.trim().to_lowercase().replace(['_', ','], "");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..digits].parse().ok()?;
    let value = number * unit(text[digits..].trim())?;
    (0.0..=1.8e19).contains(&value).then_some(value as u64)
}

/// Parses a shape with wildcards: `[4096,*]`, `4096,*`, `[*,…]`. The closing bracket may be missing
/// while it is being typed.
fn shape(text: &str) -> Option<Vec<Dim>> {
    let text = text.trim().trim_start_matches(['[', '(']).trim_end_matches([']', ')']);
    if text.trim().is_empty() {
        return Some(Vec::new());
    }
    text.trim_end_matches(',')
        .split(',')
        .map(|dim| match dim.trim() {
            "*" | "?" => Some(Dim::Any),
            "..." | "\u{2026}" | "**" => Some(Dim::AnyMany),
            number => number.parse().ok().map(Dim::Exactly),
        })
        .collect()
}

fn shape_matches(dims: &[Dim], shape: &[u64]) -> bool {
    let one = |dim: &Dim, &size: &u64| match dim {
        Dim::Exactly(number) => *number == size,
        Dim::Any | Dim::AnyMany => true,
    };
    match dims.iter().position(|dim| *dim == Dim::AnyMany) {
        None => {
            dims.len() == shape.len() && dims.iter().zip(shape).all(|(dim, size)| one(dim, size))
        }
        Some(at) => {
            let (head, tail) = (&dims[..at], &dims[at + 1..]);
            shape.len() >= head.len() + tail.len()
                && head.iter().zip(shape).all(|(dim, size)| one(dim, size))
                && tail.iter().rev().zip(shape.iter().rev()).all(|(dim, size)| one(dim, size))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::sample::{gpt, tensor, value};

    fn hits(filter: &str) -> Vec<String> {
        let rows = gpt(2);
        let filter = Filter::parse(filter).expect("a filter");
        rows.iter().filter(|row| filter.matches(row)).map(|row| row.key.clone()).collect()
    }

    #[test]
    fn words_match_parts_of_the_key() {
        assert_eq!(hits("blocks.1 FC"), Vec::<String>::new());
        assert_eq!(
            hits("blocks.1 fc"),
            ["model.model.blocks.1.fc.weight", "model.model.blocks.1.fc.bias"]
        );
        assert_eq!(hits("fc -bias -blocks.0"), ["model.model.blocks.1.fc.weight"]);
        assert_eq!(hits("").len(), gpt(2).len());
    }

    #[test]
    fn numbers_in_words_are_whole() {
        let key = |text: &str, key: &str| {
            let row = tensor(key, "float32", &[2]);
            Filter::parse(text).unwrap().matches(&row)
        };
        for (text, expected) in [
            ("layers.3 up", [true, false, false]),
            ("layers.3", [true, false, false]),
            ("30", [false, true, false]),
            ("s.3", [true, false, false]),
            ("layers. up", [true, true, true]),
            ("layers.33", [false, false, true]),
        ] {
            let found = ["layers.3.up", "layers.30.up", "layers.33.up"].map(|it| key(text, it));
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn words_that_find_nothing_are_loosened() {
        let rows = gpt(2);
        let found = |text: &str, step: u32| {
            let filter = Filter::parse(text).unwrap().loosened(step)?;
            Some(rows.iter().filter(|row| filter.matches(row)).count())
        };
        assert_eq!(hits("Blocks.1 FC").len(), 0);
        assert_eq!(found("Blocks.1 FC", 0), Some(2), "ignoring case");
        assert_eq!(found("b1 f", 0), Some(0));
        assert_eq!(found("b1 f", 1), Some(2), "by fragments");
        assert_eq!(found("b1 f", 2), None);
        assert_eq!(found("dtype:bf16", 1), None, "there is no word");
        assert_eq!(found("-fc", 0), None, "what is excluded stays exact");
    }

    #[test]
    fn sizes_have_the_usual_units() {
        for (text, bytes) in [
            ("1", 1),
            ("2B", 2),
            ("1.5k", 1_500),
            ("3 MB", 3_000_000),
            ("1GiB", 1 << 30),
            ("1TiB", 1 << 40),
            ("1 PB", 1_000_000_000_000_000),
            ("1PiB", 1 << 50),
        ] {
            assert_eq!(quantity(text), Some(bytes), "{text}");
            let term = format!("bytes > {text}");
            assert!(Filter::parse(&term).is_ok(), "{term}");
        }
        assert_eq!(quantity("1 ib"), None);
        assert_eq!(quantity("1 EB"), None);
    }

    #[test]
    fn globs_match_whole_segments() {
        assert_eq!(hits("blocks.*.bias").len(), 2);
        assert_eq!(hits("*.bia"), Vec::<String>::new());
        assert_eq!(hits("*.lr"), ["optimizer.param_groups.0.lr"]);
        assert_eq!(hits("global_ste?"), ["global_step"]);
        assert_eq!(hits("a(b*"), Vec::<String>::new());
    }

    #[test]
    fn matches_regular_expressions() {
        assert_eq!(hits("/blocks\\.[01]\\.ln/ dtype:bf16").len(), 2);
        assert_eq!(hits("/^global step|^global_step$/"), ["global_step"]);
        assert!(Filter::parse("/(/").is_err());
        assert!(Filter::parse("/").is_ok(), "the box while typing");
    }

    #[test]
    fn matches_dtypes_kinds_and_states() {
        assert_eq!(hits("dtype:bf16"), hits("dtype:torch.bfloat16"));
        assert_eq!(hits("dtype:bf16").len(), 8);
        assert_eq!(hits("kind:tensor").len() + hits("kind:value").len(), gpt(2).len());
        assert_eq!(hits("kind:int").len(), 8);
        assert_eq!(hits("state:global_step"), ["global_step"]);
        assert!(Filter::parse("kind:banana").is_err());
    }

    #[test]
    fn matches_shapes_and_sizes() {
        assert_eq!(hits("shape:[256,*]").len(), 2 + 2);
        assert_eq!(hits("shape:[256, 64] dtype:bf16").len(), 2);
        assert_eq!(hits("shape:(256, 64) dtype:bf16"), hits("shape:[256, 64] dtype:bf16"));
        assert_eq!(hits("-shape:(256, 64) !dtype:bf16"), hits("-shape:[256,64] -dtype:bf16"));
        assert_eq!(hits("shape:[]").len(), 8);
        assert_eq!(hits("shape:[\u{2026},64] state:model ln"), hits("ln state:model"));
        assert_eq!(
            hits("bytes>100kB state:model"),
            ["model.model.wte.weight", "model.model.lm_head.weight"]
        );
        assert_eq!(hits("params>=64000 state:model").len(), 2);
        assert!(Filter::parse("bytes>many").is_err());
        assert!(Filter::parse("shape:[a]").is_err());
    }

    #[test]
    fn value_terms_reject_unread_rows() {
        let values = SummaryStatistics {
            count: 10,
            nan: 1,
            zeros: 6,
            std: Some(1e-7),
            ..SummaryStatistics::default()
        };
        let row = tensor("a.weight", "float32", &[10]);
        let passes =
            |filter: &str| Filter::parse(filter).expect("a filter").passes(&row, Some(&values));
        for filter in [
            "nan>0",
            "nan > 0",
            "std<1e-6",
            "\u{3c3}<1e-6",
            "zeros>50%",
            "zeros>=6",
            "-inf>0",
            "weight nan=1",
        ] {
            assert!(passes(filter), "{filter}");
        }
        // The row has no largest magnitude.
        for filter in ["nan>1", "-nan>0", "zeros>60%", "absmax>100", "max>0", "min<0", "bias nan>0"]
        {
            assert!(!passes(filter), "{filter}");
        }
        assert!(!Filter::parse("nan>0").expect("a filter").matches(&row));
        assert!(!Filter::parse("-nan>0").expect("a filter").matches(&row));
        assert!(Filter::parse("nan>many").is_err());
        assert!(Filter::parse("std>5%").is_err());
        // A key may contain such words.
        assert!(Filter::parse("min").expect("a filter").matches(&tensor(
            "running_min",
            "float32",
            &[1]
        )));
        assert_eq!(Filter::hint("nan>0"), None);
    }

    #[test]
    fn suggests_similar_terms() {
        let suggestion = |text: &str| {
            UnknownTerm::of(text).map(|it| (text[it.start..it.end].to_owned(), it.suggestion))
        };
        assert_eq!(suggestion("fc dtpye:bf16"), Some(("dtpye".into(), Some("dtype"))));
        assert_eq!(suggestion("-absmx>100"), Some(("absmx".into(), Some("absmax"))));
        assert_eq!(suggestion("zero>50%"), Some(("zero".into(), Some("zeros"))));
        assert_eq!(suggestion("weather:fine"), Some(("weather".into(), None)));
        for known in ["dtype:bf16", "is:tensor", "size>1k", "nan>0", "a.b:c", "/x:y/", "fc"] {
            assert_eq!(suggestion(known), None, "{known}");
        }
    }

    #[test]
    fn explains_operators_that_it_does_not_have() {
        for (text, part) in [
            ("gate OR up", "/gate|up/"),
            ("a.b | up_proj", r"/a\.b|up_proj/"),
            ("gate||up", "/gate|up/"),
            ("x gate|up", "/gate|up/"),
            ("dtype:bf16 or *.up", "/one|other/"),
            ("gate AND up", "leave out \u{2018}AND\u{2019}"),
        ] {
            let hint = Filter::hint(text).unwrap_or_default();
            assert!(
                hint.starts_with("All terms must match") && hint.contains(part),
                "{text}: {hint}"
            );
        }
        for plain in ["/gate|up/", "gate", "or", "weight or", "a-b"] {
            assert_eq!(Filter::hint(plain), None, "{plain}");
        }
    }

    #[test]
    fn parses_quantities_with_units() {
        for (text, expected) in [
            ("100MB", 100_000_000),
            ("1.5k", 1500),
            ("4096", 4096),
            ("1GiB", 1 << 30),
            ("2GB", 2_000_000_000),
            ("7b", 7),
        ] {
            assert_eq!(quantity(text), Some(expected), "{text}");
        }
        assert_eq!(quantity("x"), None);
    }

    #[test]
    fn ignores_case_in_other_scripts() {
        let filter = Filter::parse("übung").expect("a filter");
        assert!(filter.matches(&value("Übung.1", "")));
        assert!(!filter.matches(&tensor("ubung", "float32", &[1])));
    }
}
