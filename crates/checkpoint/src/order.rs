//! Sorting that is compiled once.
//!
//! The standard library compiles its sort for each type and each comparison, 5 kB of Wasm each
//! time. For the forty lists that are sorted here, that would be a twentieth of the page. These
//! functions sort positions, with one copy of that code, and then move the items.

use std::cmp::Ordering;

use crate::slices::{ITEMS, pause};

/// Sorts by a comparison; equal items keep their order.
pub fn by<T>(items: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    let order = sorted(items.len(), &|one, other| compare(&items[one], &items[other]));
    arrange(order, &mut |one, other| items.swap(one, other));
}

/// Sorts by a key that is computed for each comparison; equal items keep their order.
pub fn by_key<T, K: Ord>(items: &mut [T], key: impl Fn(&T) -> K) {
    by(items, |one, other| key(one).cmp(&key(other)));
}

/// Sorts by the order of the items themselves.
pub fn natural<T: Ord>(items: &mut [T]) {
    by(items, T::cmp);
}

/// Returns the positions of items in the order given by `compare`.
fn sorted(count: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|&one, &other| compare(one, other));
    order
}

/// Like [`by`], with pauses.
pub async fn by_in_slices<T>(items: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    let compare = |one: usize, other: usize| compare(&items[one], &items[other]);
    let order = sorted_in_slices(items.len(), &compare).await;
    arrange(order, &mut |one, other| items.swap(one, other));
}

/// Like [`sorted`], with pauses: sorts runs, and merges two at a time.
async fn sorted_in_slices(count: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for run in order.chunks_mut(ITEMS) {
        run.sort_by(|&one, &other| compare(one, other));
        pause().await;
    }
    let mut merged = Vec::with_capacity(count);
    let mut len = ITEMS;
    while len < count {
        for pair in order.chunks(2 * len) {
            let (mut one, mut other) = pair.split_at(len.min(pair.len()));
            while !one.is_empty() || !other.is_empty() {
                for _ in 0..ITEMS {
                    let side = match (one.first(), other.first()) {
                        (Some(&a), Some(&b)) if compare(a, b).is_gt() => &mut other,
                        (Some(_), _) => &mut one,
                        (None, Some(_)) => &mut other,
                        (None, None) => break,
                    };
                    merged.extend(side.split_off_first());
                }
                pause().await;
            }
        }
        std::mem::swap(&mut order, &mut merged);
        merged.clear();
        len *= 2;
    }
    order
}

/// Moves the item at `order[at]` to `at`, for each `at`, cycle by cycle.
fn arrange(mut order: Vec<usize>, swap: &mut dyn FnMut(usize, usize)) {
    for start in 0..order.len() {
        let mut at = start;
        loop {
            let from = std::mem::replace(&mut order[at], at);
            if from == start {
                break;
            }
            swap(at, from);
            at = from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slices::finish;

    #[test]
    fn sorts_in_slices_like_at_once() {
        for length in [0, 1, ITEMS, ITEMS + 1, 5 * ITEMS + 7] {
            let mut items: Vec<(usize, usize)> =
                (0..length).map(|at| (at * 7919 % 1009, at)).collect();
            let mut expected = items.clone();
            expected.sort_by_key(|(key, _)| *key);
            finish(by_in_slices(&mut items, |one, other| one.0.cmp(&other.0)));
            assert_eq!(items, expected);
        }
    }

    #[test]
    fn sorts_like_the_standard_library() {
        // A linear congruential generator: many lengths, many equal keys.
        let mut state = 1_u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for length in 0..200 {
            let items: Vec<(u64, usize)> =
                (0..length).map(|at| (next(1 + length as u64 / 3), at)).collect();
            let mut expected = items.clone();
            expected.sort_by_key(|(key, _)| *key);
            let mut ours = items.clone();
            by_key(&mut ours, |(key, _)| *key);
            assert_eq!(ours, expected);
            expected.sort_by(|one, other| other.cmp(one));
            by(&mut ours, |one, other| other.cmp(one));
            assert_eq!(ours, expected);
            expected.sort_unstable();
            natural(&mut ours);
            assert_eq!(ours, expected);
        }
    }
}
