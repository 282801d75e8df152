//! Example terms for the filter box that fit the open checkpoint.

use crate::filter::state::Filter;
use crate::rows::Row;
use crate::state::fmt;
use crate::state::work::OpenWork;

/// Maximum number of keys for counting matches, so that the menu opens at once.
const MAX_COUNTED: usize = 50_000;
/// The same for regular expressions.
const MAX_COUNTED_REGEX: usize = 5_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Example {
    /// The text to type.
    pub term: String,
    /// What it filters by.
    pub what: &'static str,
    /// The number of matching keys, if counted.
    pub count: Option<usize>,
    /// Whether it is about values.
    pub of_values: bool,
}

impl Example {
    /// Returns whether it can be chosen: terms about values need values.
    pub fn is_usable(&self) -> bool {
        self.count.is_some() || !self.of_values
    }
}

/// Returns terms that fit the open checkpoint.
pub fn examples(work: &OpenWork) -> Vec<Example> {
    let largest = work.rows.iter().filter(|row| row.kind.has_shape()).max_by_key(|row| row.bytes);
    let mut terms: Vec<(String, &str)> = Vec::new();
    if let Some((dtype, _)) = work.dtypes.first() {
        terms.push((format!("dtype:{dtype}"), "dtype"));
    }
    if let Some(row) = largest {
        if let [.., last] = row.shape.as_slice()
            && row.shape.len() == 2
        {
            terms.push((format!("shape:[*, {last}]"), "shape"));
        }
        terms.push((format!("bytes>{}", size(row.bytes / 2)), "size"));
    }
    let values = [
        ("nan>0", "contains NaN"),
        ("std<1e-6", "almost constant"),
        ("absmax>100", "large values"),
        ("zeros>50%", "mostly zeros"),
    ];
    terms.extend(values.map(|(term, what)| (term.to_owned(), what)));
    let word = largest.and_then(|row| word(row, work.view.dot)).unwrap_or("weight");
    terms.push((format!("-{word}"), "without this word"));
    terms.push((format!("*.{word}"), "wildcard"));
    terms.push((format!("/[0-9]+.*{word}/"), "regular expression"));
    terms.push(("kind:value".into(), "not a tensor"));
    terms.into_iter().map(|(term, what)| counted(work, term, what)).collect()
}

/// Returns the last part of a key, if it is a plain word.
fn word(row: &Row, dot: char) -> Option<&str> {
    let last = row.key.rsplit(dot).next()?;
    last.chars().all(|c| c.is_ascii_alphabetic() || c == '_').then_some(last)
}

fn counted(work: &OpenWork, term: String, what: &'static str) -> Example {
    let filter = Filter::parse(&term).unwrap_or_default();
    let of_values = filter.is_of_values();
    let most = if term.starts_with('/') { MAX_COUNTED_REGEX } else { MAX_COUNTED };
    let known = !of_values || work.view.weights.any();
    let passes = |(at, row): &(u32, &Row)| filter.passes(row, work.view.weights.get(*at));
    let count = (known && work.rows.len() <= most)
        .then(|| (0..).zip(work.rows.iter()).filter(passes).count());
    Example { term, what, count, of_values }
}

/// Formats a size with one digit, as in `100MB`.
fn size(bytes: u64) -> String {
    let digits = bytes.max(1).ilog10();
    let one = bytes.max(1) / 10u64.pow(digits) * 10u64.pow(digits);
    let text = fmt::bytes(one);
    let (number, unit) = text.split_once(' ').unwrap_or((&text, "B"));
    let number = number.split('.').next().unwrap_or(number);
    format!("{number}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::message::OpenedCheckpoint;
    use crate::state::sample::gpt;

    #[test]
    fn examples_match_the_checkpoint() {
        let rows = gpt(2);
        let work = OpenWork::new(OpenedCheckpoint::default(), rows.clone());
        let examples = examples(&work);
        let of = |term: &str| examples.iter().find(|example| example.term == term);
        assert_eq!(of("dtype:f32").and_then(|it| it.count), Some(16), "the dtype of most tensors");
        let nan = of("nan>0").expect("a term");
        assert!(nan.of_values && nan.count.is_none());
        for example in &examples {
            let filter = Filter::parse(&example.term).expect("a filter");
            let count = rows.iter().filter(|row| filter.matches(row)).count();
            assert!(example.of_values || example.count == Some(count), "{example:?}");
        }
        assert!(examples.iter().any(|example| example.term.starts_with("shape:[*, ")));
        for (bytes, text) in [(0, "1B"), (999, "900B"), (123_456_789, "100MB"), (5_200, "5kB")] {
            assert_eq!(size(bytes), text);
        }
    }
}
