//! Summaries as lists of numbers, to be merged by another process.

use num_bigint::BigUint;

use crate::Summary;
use crate::exact::ExactSums;
use crate::spread::Spread;

/// Version of the list.
const VERSION: u64 = 1;

impl Summary {
    /// Returns the summary as a list of numbers, from which [`Summary::decoded`] restores it
    /// exactly.
    pub fn encoded(&self) -> Vec<u64> {
        let mut words = vec![VERSION];
        words.extend([
            self.count,
            self.nan,
            self.pos_inf,
            self.neg_inf,
            self.zeros,
            self.subnormal,
        ]);
        let extremes = self.extremes.map(|(min, max)| [min.to_bits(), max.to_bits()]);
        option(&mut words, extremes.as_ref().map(<[u64; 2]>::as_slice));
        let whole = self.whole.map(|(min, max)| [min, max].map(halves));
        option(&mut words, whole.as_ref().map(|halves| halves.as_flattened()));
        let largest = self.largest.map(|(value, at)| [value.to_bits(), at]);
        option(&mut words, largest.as_ref().map(<[u64; 2]>::as_slice));
        for first in [self.first_nan, self.first_inf] {
            option(&mut words, first.as_ref().map(std::slice::from_ref));
        }
        for sum in self.sums.parts() {
            list(&mut words, &sum.to_u64_digits());
        }
        match &self.spread {
            Spread::Exact(counts) => {
                words.push(0);
                let pairs = counts.iter().flat_map(|(value, count)| [*value as u64, *count]);
                list(&mut words, &pairs.collect::<Vec<u64>>());
            }
            Spread::Binned { counts, kept } => {
                words.push(1);
                let pairs = counts.iter().flat_map(|(bin, count)| [i64::from(*bin) as u64, *count]);
                list(&mut words, &pairs.collect::<Vec<u64>>());
                words.push(u64::from(kept.is_some()));
                let kept = kept.iter().flatten().map(|value| value.to_bits());
                list(&mut words, &kept.collect::<Vec<u64>>());
            }
        }
        words
    }

    /// Restores a summary; `None` if the list is not that of one.
    pub fn decoded(words: &[u64]) -> Option<Self> {
        let mut words = Words(words);
        if words.next()? != VERSION {
            return None;
        }
        let [count, nan, pos_inf, neg_inf, zeros, subnormal] = words.array()?;
        let extremes = words.option()?.map(|[min, max]| (f64::from_bits(min), f64::from_bits(max)));
        let whole = words.option()?.map(|[a, b, c, d]| (joined([a, b]), joined([c, d])));
        let largest = words.option()?.map(|[value, at]| (f64::from_bits(value), at));
        let first_nan = words.option()?.map(|[at]| at);
        let first_inf = words.option()?.map(|[at]| at);
        let sums = [words.list()?, words.list()?, words.list()?];
        let sums = ExactSums::of(sums.map(number));
        let spread = match words.next()? {
            0 => Spread::Exact(pairs(words.list()?, |value| Some(value as i64))?),
            1 => {
                let counts = pairs(words.list()?, |bin| i32::try_from(bin as i64).ok())?;
                let is_kept = words.next()? == 1;
                let kept = words.list()?.iter().map(|bits| f64::from_bits(*bits)).collect();
                Spread::Binned { counts, kept: is_kept.then_some(kept) }
            }
            _ => return None,
        };
        let whole_list = words.0.is_empty();
        let summary = Self {
            count,
            nan,
            pos_inf,
            neg_inf,
            zeros,
            subnormal,
            extremes,
            whole,
            largest,
            first_nan,
            first_inf,
            sums,
            spread,
        };
        whole_list.then_some(summary)
    }
}

fn option(words: &mut Vec<u64>, of: Option<&[u64]>) {
    words.push(u64::from(of.is_some()));
    words.extend_from_slice(of.unwrap_or_default());
}

fn list(words: &mut Vec<u64>, of: &[u64]) {
    words.push(of.len() as u64);
    words.extend_from_slice(of);
}

fn halves(value: i128) -> [u64; 2] {
    [value as u64, (value >> 64) as u64]
}

fn joined([low, high]: [u64; 2]) -> i128 {
    (u128::from(high) << 64 | u128::from(low)) as i128
}

fn number(digits: &[u64]) -> BigUint {
    let halves = digits.iter().flat_map(|digit| [*digit as u32, (*digit >> 32) as u32]);
    BigUint::new(halves.collect())
}

fn pairs<T>(words: &[u64], value: impl Fn(u64) -> Option<T>) -> Option<Vec<(T, u64)>> {
    let (pairs, rest) = words.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[first, count]| Some((value(*first)?, *count))).collect()
}

/// The rest of a list.
struct Words<'a>(&'a [u64]);

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<u64> {
        self.array().map(|[word]| word)
    }

    fn array<const N: usize>(&mut self) -> Option<[u64; N]> {
        let (words, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*words)
    }

    fn option<const N: usize>(&mut self) -> Option<Option<[u64; N]>> {
        match self.next()? {
            0 => Some(None),
            1 => self.array().map(Some),
            _ => None,
        }
    }

    fn list(&mut self) -> Option<&'a [u64]> {
        let len = usize::try_from(self.next()?).ok()?;
        let (list, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Accumulator;
    use statelens_checkpoint::DType;

    fn summary_of(values: &[f64]) -> Summary {
        let mut accumulator = Accumulator::new();
        assert!(accumulator.begin(&DType::F64, 0));
        values.iter().for_each(|value| accumulator.feed(&value.to_le_bytes()));
        accumulator.finish()
    }

    #[test]
    fn a_summary_is_restored_exactly_and_merges_alike() {
        let many: Vec<f64> = (0..200_000).map(|at| f64::from(at) * 1.000_1 - 7e3).collect();
        let parts = [
            vec![],
            vec![1.0, -2.0, 0.0, 5e-324],
            vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.1],
            (0..70_000).map(|at| f64::from(at).sqrt()).collect(),
            many,
        ];
        let (mut here, mut there) = (Summary::new(), Summary::new());
        for part in parts {
            let summary = summary_of(&part);
            let words = summary.encoded();
            let restored = Summary::decoded(&words).unwrap();
            assert_eq!(restored, summary);
            for cut in [1, words.len() / 2, words.len() - 1] {
                assert_eq!(Summary::decoded(&words[..cut]), None);
            }
            here.merge(&summary);
            there.merge(&restored);
            there = Summary::decoded(&there.encoded()).unwrap();
        }
        assert_eq!(here, there);
        assert_eq!(here.statistics(), there.statistics());
    }
}
