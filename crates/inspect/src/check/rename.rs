//! The change of a prefix that makes two lists of keys match.

use statelens_checkpoint::order;
use std::collections::HashMap;

use super::Expected;

/// A prefix of keys and what should stand in its place; either may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefix {
    /// What the file's keys start with; ends with a dot, or is empty.
    pub from: String,
    /// What they should start with instead; ends with a dot, or is empty.
    pub to: String,
}

impl Prefix {
    /// The option of `statelens convert` that does it.
    pub fn option(&self) -> String {
        match (self.from.is_empty(), self.to.is_empty()) {
            (true, _) => format!("--prefix {}", self.to),
            (false, true) => format!("--strip-prefix {}", self.from),
            (false, false) => format!("--rename '{}'", self.rule()),
        }
    }

    /// The replacement that does it, and leaves keys alone that do not start with `from`.
    pub fn rule(&self) -> String {
        format!("^{}=>{}", self.from.replace('.', "\\."), self.to)
    }
}

/// Steps of a key, from its start, that a change may drop and put in their place.
const MOST_STEPS: usize = 4;
/// Different heads of one tail that are looked at: `weight` alone has thousands.
const MOST_HEADS: usize = 8;
/// The changes that are tried out.
const MOST_TRIED: usize = 24;
/// Keys that the search looks at.
const MOST_KEYS: usize = 100_000;

/// The change of the prefix of the keys `of` that puts the most of them among the keys `to`, shape
/// and all, and how many; `None` if no change puts any there.
pub fn prefix_between(of: &[Expected], to: &[Expected]) -> Option<(Prefix, u64)> {
    nearest(to, of)
}

/// Whether a change that puts `keys` more on both sides is to be told unasked: few are, `common`, and
/// then three of four keys of the side that has `fewer` would be.
pub fn parts_sides(keys: u64, common: u64, fewer: u64) -> bool {
    common < fewer.div_ceil(2) && keys >= (fewer - fewer / 4).max(1)
}

/// The change that makes the most missing keys match one that was not expected, shape and all,
/// and how many; the smallest of equals.
pub(super) fn nearest(missing: &[Expected], unexpected: &[Expected]) -> Option<(Prefix, u64)> {
    // By what is left of a key when its first steps are dropped: the heads that were dropped.
    let mut heads: HashMap<&str, Vec<&str>> = HashMap::new();
    for one in unexpected.iter().take(MOST_KEYS) {
        for (head, tail) in splits(&one.key) {
            let heads = heads.entry(tail).or_default();
            if heads.len() < MOST_HEADS {
                heads.push(head);
            }
        }
    }
    let mut votes: HashMap<(&str, &str), u64> = HashMap::new();
    for one in missing.iter().take(MOST_KEYS) {
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
    for (change, _) in candidates.into_iter().take(MOST_TRIED) {
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
    best.map(|((from, to), keys)| (Prefix { from: from.into(), to: to.into() }, keys))
}

/// A key as a head of some steps, with its last dot, and the tail; the whole key first.
fn splits(key: &str) -> impl Iterator<Item = (&str, &str)> {
    let dots = key.match_indices('.').map(|(at, _)| at + 1).take(MOST_STEPS);
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
        // Shapes are made from the tails, so that they agree where the tails do.
        for one in &mut unexpected {
            one.shape = None;
        }
        nearest(&missing, &unexpected).map(|(prefix, keys)| (prefix.option(), keys))
    }

    #[test]
    fn a_prefix_that_is_missing_or_too_much_is_found() {
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
    fn shapes_have_to_agree() {
        let missing = [Expected { key: "m.w".into(), shape: Some(vec![2]), dtype: None }];
        let unexpected = [Expected { key: "w".into(), shape: Some(vec![3]), dtype: None }];
        assert_eq!(nearest(&missing, &unexpected), None);
    }
}
