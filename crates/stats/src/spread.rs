//! The distribution of the finite values of a tensor.

use crate::bins::{self, BinNumber, Counts};

/// Values and their counts.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Spread {
    /// Each distinct value, as its [`ordered`] key.
    Exact(Counts<i64>),
    /// Counts per bin and, if there are only a few values, the values themselves, unordered.
    Binned { counts: Counts<BinNumber>, kept: Option<Vec<f64>> },
}

impl Default for Spread {
    fn default() -> Self {
        Self::Exact(Vec::new())
    }
}

/// Number of values that are kept individually.
pub(crate) const KEPT: u64 = 1 << 16;

/// Number of distinct values that are counted individually: more than two bytes can represent.
const DIFFERENT: usize = 1 << 17;

/// Returns the bits of a finite number as an integer that sorts like the number. Both zeros have
/// the same key.
pub(crate) fn ordered(value: f64) -> i64 {
    let bits = if value == 0.0 { 0 } else { value.to_bits() as i64 };
    turned(bits)
}

/// Returns the number of an [`ordered`] key.
pub(crate) fn number(ordered: i64) -> f64 {
    f64::from_bits(turned(ordered) as u64)
}

fn turned(bits: i64) -> i64 {
    bits ^ ((bits >> 63) as u64 >> 1) as i64
}

impl Spread {
    /// Adds the values of `other`; `all` is the number of values in both together.
    pub(crate) fn merge(&mut self, other: &Self, all: u64) {
        *self = match (&mut *self, other) {
            (Self::Exact(one), other) if one.is_empty() => other.clone().within(all),
            (one, Self::Exact(other)) if other.is_empty() => std::mem::take(one).within(all),
            (Self::Exact(one), Self::Exact(other)) => {
                let counts = bins::merged(one, other);
                match counts.len() <= DIFFERENT {
                    true => Self::Exact(counts),
                    false => Self::Binned { counts: binned(&counts), kept: None },
                }
            }
            (
                Self::Binned { counts: one, kept: Some(kept) },
                Self::Binned { counts: other, kept: Some(more) },
            ) if all <= KEPT => {
                let mut kept = std::mem::take(kept);
                kept.extend_from_slice(more);
                Self::Binned { counts: bins::merged(one, other), kept: Some(kept) }
            }
            (one, other) => {
                let counts = bins::merged(&one.counts(), &other.counts());
                Self::Binned { counts, kept: None }
            }
        };
    }

    /// Returns whether each value is known, and not just its bin.
    pub(crate) fn is_exact(&self) -> bool {
        !matches!(self, Self::Binned { kept: None, .. })
    }

    /// Returns the value at index `rank` in ascending order, or the middle of its bin.
    pub(crate) fn at(&self, rank: u64) -> Option<f64> {
        match self {
            Self::Exact(counts) => nth(counts, rank).map(number),
            Self::Binned { kept: Some(kept), .. } => {
                let mut kept = kept.clone();
                let rank = usize::try_from(rank).ok().filter(|rank| *rank < kept.len())?;
                Some(*kept.select_nth_unstable_by(rank, f64::total_cmp).1)
            }
            Self::Binned { counts, kept: None } => nth(counts, rank).map(middle),
        }
    }

    /// Calls `visit` with each value, or the middle of its bin, and its count, in no particular
    /// order.
    pub(crate) fn each(&self, mut visit: impl FnMut(f64, u64)) {
        match self {
            Self::Exact(counts) => counts.iter().for_each(|(key, n)| visit(number(*key), *n)),
            Self::Binned { kept: Some(kept), .. } => kept.iter().for_each(|it| visit(*it, 1)),
            Self::Binned { counts, kept: None } => {
                counts.iter().for_each(|(key, n)| visit(middle(*key), *n));
            }
        }
    }

    /// Returns the number of values between each two adjacent edges; the last bin includes its
    /// upper edge. Values outside the edges are not counted. Where only bins are known, their
    /// values are assumed to be evenly distributed within the bin, between `min` and `max`.
    pub(crate) fn histogram(&self, edges: &[f64], (min, max): (f64, f64)) -> Vec<u64> {
        let mut counts = vec![0; edges.len().saturating_sub(1)];
        let (Some(first), Some(last)) = (edges.first(), edges.last()) else { return counts };
        let Self::Binned { counts: bins, kept: None } = self else {
            self.each(|value, n| {
                if *first <= value && value <= *last {
                    let at = edges.partition_point(|edge| *edge <= value);
                    let at = at.clamp(1, counts.len().max(1)) - 1;
                    if let Some(count) = counts.get_mut(at) {
                        *count += n;
                    }
                }
            });
            return counts;
        };
        for (key, n) in bins {
            let (low, high) = bins::range(*key);
            let (low, high) = (low.max(min), high.min(max));
            if high < *first || low > *last {
                continue;
            }
            // The number of the bin's values that are below an edge.
            let below = |edge: f64| match edge {
                edge if edge <= low => 0,
                edge if edge > high => *n,
                edge => ((edge - low) / (high - low) * *n as f64).round() as u64,
            };
            // The last edge belongs to the last bin.
            let start =
                edges.partition_point(|edge| *edge <= low).clamp(1, counts.len().max(1)) - 1;
            let mut before = edges.get(start).map_or(0, |edge| below(*edge));
            for (at, count) in counts.iter_mut().enumerate().skip(start) {
                let upper = edges.get(at + 1).copied().unwrap_or(*last);
                let next = if at + 2 == edges.len() && upper >= high { *n } else { below(upper) };
                *count += next.saturating_sub(before);
                before = before.max(next);
                if next == *n {
                    break;
                }
            }
        }
        counts
    }

    /// Drops the individual values if `all` is more than are kept.
    fn within(mut self, all: u64) -> Self {
        if let Self::Binned { kept, .. } = &mut self
            && all > KEPT
        {
            *kept = None;
        }
        self
    }

    fn counts(&self) -> Counts<BinNumber> {
        match self {
            Self::Exact(counts) => binned(counts),
            Self::Binned { counts, .. } => counts.clone(),
        }
    }
}

fn binned(counts: &Counts<i64>) -> Counts<BinNumber> {
    bins::sorted(counts.iter().map(|(value, n)| (bins::key(number(*value)), *n)).collect())
}

fn nth<K: Copy>(counts: &Counts<K>, rank: u64) -> Option<K> {
    let mut before = 0u64;
    counts.iter().find_map(|(key, n)| {
        before += n;
        (rank < before).then_some(*key)
    })
}

fn middle(key: BinNumber) -> f64 {
    let (low, high) = bins::range(key);
    low / 2.0 + high / 2.0
}
