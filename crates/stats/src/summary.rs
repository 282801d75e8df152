//! Mergeable summaries of values: they add up across the pieces of a tensor and across tensors.

use crate::exact::ExactSums;
use crate::spread::{Spread, number, ordered};

/// A summary of the values of a tensor, of a part of one, or of several.
///
/// Summaries of parts can be [merged](Summary::merge). Neither the order of merging nor the split
/// into parts changes the result, not even in the last bit.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Summary {
    pub(crate) count: u64,
    pub(crate) nan: u64,
    pub(crate) pos_inf: u64,
    pub(crate) neg_inf: u64,
    pub(crate) zeros: u64,
    pub(crate) subnormal: u64,
    /// The smallest and the largest finite value.
    pub(crate) extremes: Option<(f64, f64)>,
    /// The exact extremes if all values are integers, which a double may not hold.
    pub(crate) whole: Option<(i128, i128)>,
    /// The largest finite magnitude, and the index of the first value that has it.
    pub(crate) largest: Option<(f64, u64)>,
    pub(crate) first_nan: Option<u64>,
    pub(crate) first_inf: Option<u64>,
    pub(crate) sums: ExactSums,
    pub(crate) spread: Spread,
}

/// The spacing of a histogram's bins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// All bins have the same width.
    Linear,
    /// Logarithmic by magnitude on both sides of zero, with one bin around zero for small values.
    Log,
}

/// Value counts per bin.
#[derive(Debug, Clone, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub struct Histogram {
    /// The edges, one more than there are bins. A value on an edge is counted in the bin above it,
    /// a value on the last edge in the last bin. Empty if there are no finite values.
    pub edges: Vec<f64>,
    /// Number of finite values in each bin.
    pub counts: Vec<u64>,
}

/// The smallest magnitude that a logarithmic histogram shows, as a fraction of the largest.
const DEPTH: f64 = 1e-9;

impl Summary {
    /// Returns a summary of no values.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the summary of other values.
    pub fn merge(&mut self, other: &Self) {
        self.whole = match (self.whole, other.whole) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (one, other_whole) if one.is_none() && self.extremes.is_none() => other_whole,
            (one, None) if other.extremes.is_none() => one,
            // One side has values that are not integers.
            _ => None,
        };
        self.count += other.count;
        self.nan += other.nan;
        self.pos_inf += other.pos_inf;
        self.neg_inf += other.neg_inf;
        self.zeros += other.zeros;
        self.subnormal += other.subnormal;
        self.extremes = both(self.extremes, other.extremes, |a, b| (a.0.min(b.0), a.1.max(b.1)));
        self.largest = both(self.largest, other.largest, |a, b| {
            let second = b.0 > a.0 || b.0 == a.0 && b.1 < a.1;
            if second { b } else { a }
        });
        self.first_nan = both(self.first_nan, other.first_nan, u64::min);
        self.first_inf = both(self.first_inf, other.first_inf, u64::min);
        self.sums.merge(&other.sums);
        self.spread.merge(&other.spread, self.count);
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the number of finite values.
    pub fn finite(&self) -> u64 {
        self.count - self.nan - self.pos_inf - self.neg_inf
    }

    /// Returns the numbers of NaN and of infinite values, and the index of the first of either.
    pub fn not_finite(&self) -> (u64, u64, Option<u64>) {
        let first = both(self.first_nan, self.first_inf, u64::min);
        (self.nan, self.pos_inf + self.neg_inf, first)
    }

    /// Returns the quantile at the fraction `part` of the finite values, with numpy's "lower" rule:
    /// if it is between two values, the lower one. Exact for dtypes of up to 16 bits and for up to
    /// 65,536 values, otherwise within 1/256.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let last = self.finite().checked_sub(1)?;
        let (min, max) = self.extremes?;
        match (part.clamp(0.0, 1.0) * last as f64).floor() as u64 {
            0 => Some(min),
            rank if rank >= last => Some(max),
            rank => self.spread.at(rank).map(|value| value.clamp(min, max)),
        }
    }

    /// Returns whether quantiles and histograms are exact.
    pub fn is_exact(&self) -> bool {
        self.spread.is_exact()
    }

    /// Counts the finite values in `bins` bins (at least one) between the smallest and the largest
    /// value.
    pub fn histogram(&self, scale: Scale, bins: usize) -> Histogram {
        let Some((min, max)) = self.extremes else { return Histogram::default() };
        let edges = match scale {
            Scale::Linear => linear(min, max, bins.max(1)),
            Scale::Log => self.logarithmic(min, max, bins.max(1)),
        };
        self.histogram_between(edges)
    }

    /// Counts the finite values between the given edges, which must be in ascending order.
    pub fn histogram_between(&self, edges: Vec<f64>) -> Histogram {
        let Some(extremes) = self.extremes else { return Histogram::default() };
        Histogram { counts: self.spread.histogram(&edges, extremes), edges }
    }

    /// Calls `visit` with each distinct finite value, or the middle of its bin, and its count, in
    /// no particular order.
    pub fn each(&self, visit: impl FnMut(f64, u64)) {
        self.spread.each(visit);
    }

    fn logarithmic(&self, min: f64, max: f64, bins: usize) -> Vec<f64> {
        let most = max.abs().max(min.abs());
        let mut least = most;
        self.each(|value, _| {
            if value != 0.0 {
                least = least.min(value.abs());
            }
        });
        let least = least.max(most * DEPTH);
        if most == 0.0 || bins < 3 {
            return linear(min, max, bins);
        }
        // If all values have the same sign, that side gets all bins except the one around zero,
        // which is present only if there are values in it.
        let mut edges = match (min < -least, max > least) {
            (true, true) => {
                let (below, above) = ((bins - 1) / 2, bins - 1 - (bins - 1) / 2);
                let mut edges = powers(least, -min, below);
                edges.iter_mut().for_each(|edge| *edge = -*edge);
                edges.reverse();
                edges.extend(powers(least, max, above));
                edges
            }
            (false, true) if min >= least => powers(min, max, bins),
            (false, true) => {
                let mut edges = vec![min.min(0.0)];
                edges.extend(powers(least, max, bins - 1));
                edges
            }
            (true, false) if max <= -least => {
                let mut edges = powers(-max, -min, bins);
                edges.iter_mut().for_each(|edge| *edge = -*edge);
                edges.reverse();
                edges
            }
            (true, false) => {
                let mut edges = powers(least, -min, bins - 1);
                edges.iter_mut().for_each(|edge| *edge = -*edge);
                edges.reverse();
                edges.push(max.max(0.0));
                edges
            }
            (false, false) => linear(min, max, bins),
        };
        for at in 1..edges.len() {
            edges[at] = edges[at].max(edges[at - 1]);
        }
        edges
    }

    /// Counts a value if it is not finite, zero or subnormal (below `normal`).
    pub(crate) fn note(&mut self, value: f64, count: u64, normal: f64) {
        self.count += count;
        if value.is_nan() {
            self.nan += count;
        } else if value == f64::INFINITY {
            self.pos_inf += count;
        } else if value == f64::NEG_INFINITY {
            self.neg_inf += count;
        } else if value == 0.0 {
            self.zeros += count;
        } else if value.abs() < normal {
            self.subnormal += count;
        }
    }

    /// Adds values of at most 17 significant bits, whose positions are recorded elsewhere.
    pub(crate) fn add_values(&mut self, values: impl Iterator<Item = (f64, u64)>, normal: f64) {
        let mut counts = Vec::new();
        for (value, count) in values.filter(|(_, count)| *count > 0) {
            self.note(value, count, normal);
            if value.is_finite() {
                counts.push((ordered(value), count));
            }
        }
        let counts = crate::bins::sorted(counts);
        if let (Some(first), Some(last)) = (counts.first(), counts.last()) {
            self.extend(number(first.0), number(last.0));
        }
        self.sums.add_short(counts.iter().map(|(value, count)| (number(*value), *count)));
        self.spread.merge(&Spread::Exact(counts), self.count);
    }

    /// Extends the range of finite values.
    pub(crate) fn extend(&mut self, min: f64, max: f64) {
        // Adding 0 turns -0 into 0, so that the order in which both arrive does not matter.
        let new = Some((min + 0.0, max + 0.0));
        self.extremes = both(self.extremes, new, |a, b| (a.0.min(b.0), a.1.max(b.1)));
    }
}

fn both<T>(one: Option<T>, other: Option<T>, join: impl FnOnce(T, T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(join(one, other)),
        (one, other) => one.or(other),
    }
}

/// Returns evenly spaced edges; the first and the last are exactly as given.
fn linear(min: f64, max: f64, bins: usize) -> Vec<f64> {
    // If all values are equal, a bin around that value.
    let (min, max) = match min == max {
        true => {
            let half = (min.abs() * 1e-3).max(0.5);
            (min - half, max + half)
        }
        false => (min, max),
    };
    let part = |at: usize| at as f64 / bins as f64;
    let mut edges: Vec<f64> =
        (0..=bins).map(|at| min * (1.0 - part(at)) + max * part(at)).collect();
    edges[bins] = max;
    edges
}

/// Returns edges between two positive numbers, each the same ratio from the next.
fn powers(least: f64, most: f64, bins: usize) -> Vec<f64> {
    let (low, high) = (least.log2(), most.log2());
    let part = |at: usize| at as f64 / bins.max(1) as f64;
    let mut edges: Vec<f64> =
        (0..=bins).map(|at| (low + (high - low) * part(at)).exp2().min(most)).collect();
    edges[0] = least;
    edges[bins] = most;
    edges
}
