//! What is known of some values: it adds up, over the pieces of a tensor, and over tensors.

use crate::exact::ExactSums;
use crate::spread::{Spread, number, ordered};

/// What is known of the values of a tensor, of a part of one, or of several.
///
/// Summaries of parts are [merged](Summary::merge); in which order, and how the values were cut
/// into parts, changes nothing, not even the last bit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Summary {
    pub(crate) count: u64,
    pub(crate) nan: u64,
    pub(crate) pos_inf: u64,
    pub(crate) neg_inf: u64,
    pub(crate) zeros: u64,
    pub(crate) subnormal: u64,
    /// Of the finite values.
    pub(crate) extremes: Option<(f64, f64)>,
    /// The same of whole numbers that a double may not hold.
    pub(crate) whole: Option<(i128, i128)>,
    /// The largest finite magnitude, and where it is first.
    pub(crate) largest: Option<(f64, u64)>,
    pub(crate) first_nan: Option<u64>,
    pub(crate) first_inf: Option<u64>,
    pub(crate) sums: ExactSums,
    pub(crate) spread: Spread,
}

/// How the bins of a histogram lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// All of one width.
    Linear,
    /// By magnitude, to both sides of zero; around it one bin for what is too small.
    Log,
}

/// Values counted by bins.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Histogram {
    /// The edges, one more than bins; a value on an edge is in the bin above it, on the last edge in
    /// the last bin. Empty if there is no finite value.
    pub edges: Vec<f64>,
    /// How many finite values are in each bin.
    pub counts: Vec<u64>,
}

/// A logarithmic histogram shows magnitudes down to this part of the largest.
const DEPTH: f64 = 1e-9;

impl Summary {
    /// One of no values.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds what is known of other values.
    pub fn merge(&mut self, other: &Self) {
        self.whole = match (self.whole, other.whole) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (one, other_whole) if one.is_none() && self.extremes.is_none() => other_whole,
            (one, None) if other.extremes.is_none() => one,
            // Numbers that are not whole are among them.
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

    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How many of them are finite.
    pub fn finite(&self) -> u64 {
        self.count - self.nan - self.pos_inf - self.neg_inf
    }

    /// The value that so large a part of the finite ones lies below, by the "lower" rule of numpy: a
    /// value that there is, the one before if it lies between two. Exact for values of up to 16 bits
    /// and wherever there are up to 65,536 of them, else within 1/256.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let last = self.finite().checked_sub(1)?;
        let (min, max) = self.extremes?;
        match (part.clamp(0.0, 1.0) * last as f64).floor() as u64 {
            0 => Some(min),
            rank if rank >= last => Some(max),
            rank => self.spread.at(rank).map(|value| value.clamp(min, max)),
        }
    }

    /// Whether quantiles and histograms are exact.
    pub fn is_exact(&self) -> bool {
        self.spread.is_exact()
    }

    /// The finite values counted in so many bins (at least one) between the smallest and the largest.
    pub fn histogram(&self, scale: Scale, bins: usize) -> Histogram {
        let Some((min, max)) = self.extremes else { return Histogram::default() };
        let edges = match scale {
            Scale::Linear => linear(min, max, bins.max(1)),
            Scale::Log => self.logarithmic(min, max, bins.max(1)),
        };
        self.histogram_between(edges)
    }

    /// The finite values counted between edges that are in order.
    pub fn histogram_between(&self, edges: Vec<f64>) -> Histogram {
        let Some(extremes) = self.extremes else { return Histogram::default() };
        Histogram { counts: self.spread.histogram(&edges, extremes), edges }
    }

    /// Each finite value that there is, or the middle of its bin, with how often; in no order.
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
        // One side has all bins but that around zero, which is there if anything lies in it.
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

    /// Counts a value that is not finite, or is zero, or is so small that it is not normal.
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

    /// Adds values of at most 17 significant bits whose places are noted elsewhere.
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

    /// Takes finite extremes in.
    pub(crate) fn extend(&mut self, min: f64, max: f64) {
        // Minus zero becomes zero, so that the order in which both come does not matter.
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

/// Edges at the same distance; the first and the last are as given.
fn linear(min: f64, max: f64, bins: usize) -> Vec<f64> {
    // Of one value: a bin around it.
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

/// Edges whose ratios are the same, between two positive numbers.
fn powers(least: f64, most: f64, bins: usize) -> Vec<f64> {
    let (low, high) = (least.log2(), most.log2());
    let part = |at: usize| at as f64 / bins.max(1) as f64;
    let mut edges: Vec<f64> =
        (0..=bins).map(|at| (low + (high - low) * part(at)).exp2().min(most)).collect();
    edges[0] = least;
    edges[bins] = most;
    edges
}
