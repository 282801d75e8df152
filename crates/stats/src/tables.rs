//! The tables that elements are counted in.

use crate::Summary;
use crate::bins::{self, BINS, BITS, BinNumber, Counts, NORMAL};
use crate::kind::{Codes, Half};
use crate::spread::Spread;

/// Tables, each made when it is needed, and all zero when what it counted was moved on.
#[derive(Debug, Default)]
pub(crate) struct CountTables {
    /// By the code of a byte.
    pub(crate) bytes: Vec<u64>,
    /// By the code of two bytes, twice, so that two equal elements one after the other do not wait
    /// for each other.
    pub(crate) halves: Vec<u32>,
    /// By the upper 16 bits of a 32-bit float that is not subnormal: see [`Single`].
    pub(crate) singles: Vec<Single>,
    /// By bins of positive and then of negative numbers.
    pub(crate) wide: Vec<u32>,
    /// Whether `wide` counts anything.
    pub(crate) some_wide: bool,
    /// By sign and exponent of a double.
    pub(crate) powers: Vec<Power>,
    /// Zeros, of elements that are counted in `singles` or `wide`.
    pub(crate) zeros: u64,
    /// Whole numbers, positive and negative ones.
    pub(crate) whole: [Whole; 2],
}

/// Codes of two bytes.
pub(crate) const HALVES: usize = 1 << 16;

/// How many floats there are of a bin, and the sum of the lower 16 bits of all, in the lower 40
/// bits; and the sum of the squares of those. That gives the sum and the sum of squares of the
/// floats, exactly.
pub(crate) type Single = [u64; 2];

/// Where the number of floats stands in a [`Single`].
pub(crate) const COUNT: u32 = 40;

/// The sum of the mantissas of doubles of one sign and exponent, and of their squares.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Power {
    pub(crate) sum: u128,
    pub(crate) squares: u128,
}

/// The sum of magnitudes, and of their squares, which may be more than 128 bits.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Whole {
    pub(crate) sum: u128,
    pub(crate) squares: u128,
    pub(crate) carries: u64,
}

/// The table, made if it is not there yet.
pub(crate) fn sized<T: Clone + Default>(table: &mut Vec<T>, len: usize) -> &mut [T] {
    if table.len() < len {
        table.resize(len, T::default());
    }
    table
}

impl CountTables {
    pub(crate) fn flush_bytes(&mut self, codes: &Codes, summary: &mut Summary) {
        let counts = std::mem::take(&mut self.bytes);
        let of = |values: &[f64; 256]| -> Vec<(f64, u64)> {
            values.iter().copied().zip(counts.iter().copied()).collect()
        };
        let mut all = of(&codes.values);
        all.extend(codes.seconds.iter().flat_map(of));
        summary.add_values(all.into_iter(), codes.normal);
    }

    pub(crate) fn flush_halves(&mut self, half: Half, few: Option<&[u8]>, summary: &mut Summary) {
        if self.halves.is_empty() {
            return;
        }
        let (one, other) = self.halves.split_at_mut(HALVES);
        let mut values = Vec::new();
        let mut take = |code: u16| {
            let at = usize::from(code);
            let count = u64::from(one[at]) + u64::from(other[at]);
            if count > 0 {
                (one[at], other[at]) = (0, 0);
                values.push((half.value(code), count));
            }
        };
        match few {
            Some(few) => few.as_chunks().0.iter().for_each(|it| take(u16::from_le_bytes(*it))),
            None => (0..=u16::MAX).for_each(take),
        }
        summary.add_values(values.into_iter(), half.normal());
    }

    pub(crate) fn flush_singles(&mut self, few: Option<&[u8]>, summary: &mut Summary) {
        let doubles = few.filter(|_| self.some_wide).map(|few| {
            let few = few.as_chunks().0.iter().map(|it| f32::from_le_bytes(*it).into());
            few.filter(|value: &f64| value.is_finite()).collect::<Vec<f64>>()
        });
        let mut counts = self.flush_wide(doubles.as_deref(), summary);
        let mut used: Counts<u16> = Vec::new();
        let mut look = |at: u16| match self.singles.get(usize::from(at)) {
            Some([count, _]) if *count > 0 => used.push((at, 1)),
            _ => {}
        };
        match few {
            Some(few) => few
                .as_chunks()
                .0
                .iter()
                .for_each(|it: &[u8; 4]| look(u16::from_le_bytes([it[2], it[3]]))),
            None => (0..=u16::MAX).for_each(look),
        }
        // Those of one exponent are added up before they become long numbers.
        let (mut of, mut sum, mut squares) = ((0, false), 0u128, 0u128);
        for (at, _) in bins::sorted(used) {
            let [packed, low_squares] = std::mem::take(&mut self.singles[usize::from(at)]);
            let (count, low) = (packed >> COUNT, u128::from(packed & ((1 << COUNT) - 1)));
            let (exponent, seven) = (u32::from(at >> BITS & 0xff), u64::from(at & 0x7f));
            let negative = at >> 15 == 1;
            let high = u128::from(1 << BITS | seven) << 16;
            let bin = ((u64::from(exponent) + 896) << BITS | seven) + NORMAL;
            counts.push((signed(bin as usize, negative), count));
            // A float of 32 bits is its mantissa times 2^(exponent - 150).
            let next = (exponent + 1074 - 150, negative);
            if next != of {
                summary.sums.add(of.0, of.1, sum, squares, 0);
                (of, sum, squares) = (next, 0, 0);
            }
            let count = u128::from(count);
            sum += count * high + low;
            squares += count * high * high + 2 * high * low + u128::from(low_squares);
        }
        summary.sums.add(of.0, of.1, sum, squares, 0);
        self.flush_spread(counts, summary);
    }

    /// Takes the counts by bins; `few` are the values that are counted, where those are few.
    pub(crate) fn flush_wide(
        &mut self,
        few: Option<&[f64]>,
        summary: &mut Summary,
    ) -> Counts<BinNumber> {
        let mut counts = Vec::new();
        if self.some_wide {
            let mut take = |at: usize| {
                let (bin, negative) = if at < BINS { (at, false) } else { (at - BINS, true) };
                let count = std::mem::take(&mut self.wide[at]);
                if count > 0 {
                    counts.push((signed(bin, negative), count.into()));
                }
            };
            match few {
                Some(few) => few.iter().filter(|value| **value != 0.0).for_each(|value| {
                    let negative = if *value < 0.0 { BINS } else { 0 };
                    take(bins::bin(value.abs().to_bits()) + negative);
                }),
                None => (0..2 * BINS).for_each(take),
            }
            self.some_wide = false;
        }
        for (at, power) in self.powers.iter_mut().enumerate().filter(|(_, power)| power.sum > 0) {
            let Power { sum, squares } = std::mem::take(power);
            // Subnormal numbers have the exponent of the smallest others.
            let shift = (at as u32 & 0x7ff).max(1) - 1;
            summary.sums.add(shift, at >= 0x800, sum, squares, 0);
        }
        for (whole, negative) in self.whole.iter_mut().zip([false, true]) {
            let Whole { sum, squares, carries } = std::mem::take(whole);
            summary.sums.add(1074, negative, sum, squares, carries);
        }
        counts
    }

    pub(crate) fn flush_spread(&mut self, mut counts: Counts<BinNumber>, summary: &mut Summary) {
        let zeros = std::mem::take(&mut self.zeros);
        summary.zeros += zeros;
        if zeros > 0 {
            counts.push((0, zeros));
        }
        let spread = Spread::Binned { counts: bins::sorted(counts), kept: None };
        summary.spread.merge(&spread, summary.count);
    }
}

/// The number of the bin.
fn signed(bin: usize, negative: bool) -> BinNumber {
    let key = 1 + bin as BinNumber;
    if negative { -key } else { key }
}
