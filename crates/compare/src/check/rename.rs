//! Finds the change of prefix that makes two lists of keys match.

use std::collections::HashMap;

use serde::Serialize;
use statelens_checkpoint::order;

use super::Expected;

/// A change of the prefix of keys; both prefixes may be empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PrefixChange {
    /// The prefix of the file's keys; ends with a dot, or is empty.
    pub from: String,
    /// The replacement; ends with a dot, or is empty.
    pub to: String,
    /// The option of `statelens convert` that makes this change.
    pub option: String,
    /// Number of keys that match after it.
    pub keys: u64,
}

impl PrefixChange {
    fn new(from: &str, to: &str, keys: u64) -> Self {
        let mut change =
            Self { from: from.to_owned(), to: to.to_owned(), option: String::new(), keys };
        change.option = match (from, to) {
            ("", to) => format!("--prefix {to}"),
            (from, "") => format!("--strip-prefix {from}"),
            _ => format!("--rename '{}'", change.rule()),
        };
        change
    }

    /// Returns the replacement rule that makes this change, and only for keys that start with
    /// `from`.
    pub fn rule(&self) -> String {
        format!("^{}=>{}", self.from.replace('.', "\\."), self.to)
    }
}

/// Maximum number of leading key steps that a change removes, and that it adds.
const MAX_STEPS: usize = 4;
/// Maximum number of heads per tail that are considered: `weight` alone has thousands.
const MAX_HEADS: usize = 8;
/// Maximum number of changes that are tried.
const MAX_CANDIDATES: usize = 24;
/// Maximum number of keys that are searched.
const MAX_KEYS: usize = 100_000;

/// Returns the change of prefix that turns the most keys of `of` into keys of `to` with the same
/// shape; `None` if no change matches any.
pub fn prefix_between(of: &[Expected], to: &[Expected]) -> Option<PrefixChange> {
    nearest(to, of)
}

/// Returns whether a change that adds `keys` common keys is worth suggesting: if less than half of
/// the keys are `common`, and the change matches three quarters of the keys of the side that has
/// `fewer`.
pub fn parts_sides(keys: u64, common: u64, fewer: u64) -> bool {
    common < fewer.div_ceil(2) && keys >= (fewer - fewer / 4).max(1)
}

/// Returns the change that turns the most unexpected keys into missing ones with the same shape;
/// among equals, the smallest change.
pub(super) fn nearest(missing: &[Expected], unexpected: &[Expected]) -> Option<PrefixChange> {
    // For each tail of a key, the heads in front of it.
    let mut heads: HashMap<&str, Vec<&str>> = HashMap::new();
    for one in unexpected.iter().take(MAX_KEYS) {
        for (head, tail) in splits(&one.key) {
            let heads = heads.entry(tail).or_default();
            if heads.len() < MAX_HEADS {
                heads.push(head);
            }
        }
    }
    let mut votes: HashMap<(&str, &str), u64> = HashMap::new();
    for one in missing.iter().take(MAX_KEYS) {
        for (to, tail) in splits(&one.key) {
            for from in heads.get(tail).into_iter().flatten() {
                *votes.entry((from, to)).or_default() += 1;
            }
        }
    }
    let mut candidates: Vec<((&str, &str), u64)> = votes.into_iter().collect();
    let length = |(from, to): (&str, &str)| from.len() + to.len();
    order::by_key(&mut candidates, |(change, votes)| {
        (std::cmp::Reverse(*votes), length(*change), *change)
    });
    let wanted: HashMap<&str, &Expected> =
        missing.iter().map(|one| (one.key.as_str(), one)).collect();
    let mut best: Option<((&str, &str), u64)> = None;
    for (change, _) in candidates.into_iter().take(MAX_CANDIDATES) {
        let (from, to) = change;
        let fits = |one: &&Expected| {
            let rest = one.key.strip_prefix(from);
            let found = rest.and_then(|rest| wanted.get(format!("{to}{rest}").as_str()));
            found.is_some_and(|found| match (&found.shape, &one.shape) {
                (Some(wants), Some(has)) => wants == has,
                _ => true,
            })
        };
        let keys = unexpected.iter().filter(fits).count() as u64;
        if keys > best.map_or(0, |(_, keys)| keys) {
            best = Some((change, keys));
        }
    }
    best.map(|((from, to), keys)| PrefixChange::new(from, to, keys))
}

/// Splits a key into a head of some steps, with its trailing dot, and a tail; the empty head comes
/// first.
fn splits(key: &str) -> impl Iterator<Item = (&str, &str)> {
    let dots = key.match_indices('.').map(|(at, _)| at + 1).take(MAX_STEPS);
    std::iter::once(0).chain(dots).map(|at| key.split_at(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(keys: &[&str]) -> Vec<Expected> {
        let one = |key: &&str| Expected {
            key: (*key).into(),
            dtype: None,
            shape: Some(vec![key.len() as u64 % 2]),
        };
        keys.iter().map(one).collect()
    }

    fn found(missing: &[&str], unexpected: &[&str]) -> Option<(String, u64)> {
        let mut unexpected = keys(unexpected);
        let missing = keys(missing);
        // Unexpected keys have no shapes here, so that only the tails matter.
        for one in &mut unexpected {
            one.shape = None;
        }
        nearest(&missing, &unexpected).map(|change| (change.option, change.keys))
    }

    #[test]
    fn finds_a_missing_or_extra_prefix() {
        assert_eq!(
            found(&["model.a.w", "model.a.b", "model.n"], &["a.w", "a.b", "n"]),
            Some(("--prefix model.".into(), 3))
        );
        assert_eq!(
            found(&["a.w", "a.b"], &["module.a.w", "module.a.b", "other"]),
            Some(("--strip-prefix module.".into(), 2))
        );
        assert_eq!(
            found(&["layers.0.w", "layers.1.w", "n"], &["t.h.0.w", "t.h.1.w"]),
            Some((r"--rename '^t\.h\.=>layers.'".into(), 2))
        );
        assert_eq!(found(&["a"], &["b"]), None);
        assert_eq!(found(&[], &["b"]), None);
    }

    #[test]
    fn requires_equal_shapes() {
        let missing = [Expected { key: "m.w".into(), shape: Some(vec![2]), dtype: None }];
        let unexpected = [Expected { key: "w".into(), shape: Some(vec![3]), dtype: None }];
        assert_eq!(nearest(&missing, &unexpected), None);
    }
}
