//! The tables that elements are counted in.

use crate::Summary;
use crate::bins::{self, BINS, BITS, BinNumber, Counts, NORMAL};
use crate::kind::{Codes, Half};
use crate::spread::Spread;

/// Count tables. Each is allocated on first use, and zeroed when its contents are moved to the
/// summary.
#[derive(Debug, Default)]
pub(crate) struct CountTables {
    /// Counts by the code of one byte.
    pub(crate) bytes: Vec<u64>,
    /// Counts by the code of two bytes. There are two tables, so that consecutive equal elements do
    /// not wait for each other's increment.
    pub(crate) halves: Vec<u32>,
    /// Counts and sums by the upper 16 bits of 32-bit floats that are not subnormal: see
    /// [`Single`].
    pub(crate) singles: Vec<Single>,
    /// Counts by bin: first those of positive, then those of negative numbers.
    pub(crate) wide: Vec<u32>,
    /// Whether `wide` has any counts.
    pub(crate) some_wide: bool,
    /// Sums by sign and exponent of a double.
    pub(crate) powers: Vec<Power>,
    /// Number of zeros among the elements that are counted in `singles` or `wide`.
    pub(crate) zeros: u64,
    /// Sums of positive and of negative integers.
    pub(crate) whole: [Whole; 2],
}

/// Number of two-byte codes.
pub(crate) const HALVES: usize = 1 << 16;

/// The count of the floats in one bin, shifted by [`COUNT`], plus the sum of their lower 16 bits;
/// and the sum of the squares of those lower bits. The exact sum and sum of squares of the floats
/// follow from these.
pub(crate) type Single = [u64; 2];

/// The bit position of the count in a [`Single`].
pub(crate) const COUNT: u32 = 40;

/// The sum of the mantissas of doubles of one sign and exponent, and the sum of their squares.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Power {
    pub(crate) sum: u128,
    pub(crate) squares: u128,
}

/// The sum of magnitudes, and the sum of their squares, which may exceed 128 bits.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Whole {
    pub(crate) sum: u128,
    pub(crate) squares: u128,
    pub(crate) carries: u64,
}

/// Returns the table, allocated on first use.
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

    pub(crate) fn flush_halves(
        &mut self,
        half: Half,
        sparse: Option<&[u8]>,
        summary: &mut Summary,
    ) {
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
        match sparse {
            Some(sparse) => {
                sparse.as_chunks().0.iter().for_each(|it| take(u16::from_le_bytes(*it)))
            }
            None => (0..=u16::MAX).for_each(take),
        }
        summary.add_values(values.into_iter(), half.normal());
    }

    pub(crate) fn flush_singles(&mut self, sparse: Option<&[u8]>, summary: &mut Summary) {
        let doubles = sparse.filter(|_| self.some_wide).map(|sparse| {
            let sparse = sparse.as_chunks().0.iter().map(|it| f32::from_le_bytes(*it).into());
            sparse.filter(|value: &f64| value.is_finite()).collect::<Vec<f64>>()
        });
        let mut counts = self.flush_wide(doubles.as_deref(), summary);
        let mut used: Counts<u16> = Vec::new();
        let mut look = |at: u16| match self.singles.get(usize::from(at)) {
            Some([count, _]) if *count > 0 => used.push((at, 1)),
            _ => {}
        };
        match sparse {
            Some(sparse) => sparse
                .as_chunks()
                .0
                .iter()
                .for_each(|it: &[u8; 4]| look(u16::from_le_bytes([it[2], it[3]]))),
            None => (0..=u16::MAX).for_each(look),
        }
        // Sums of one exponent are added up before they are converted to big integers.
        let (mut of, mut sum, mut squares) = ((0, false), 0u128, 0u128);
        for (at, _) in bins::sorted(used) {
            let [packed, low_squares] = std::mem::take(&mut self.singles[usize::from(at)]);
            let (count, low) = (packed >> COUNT, u128::from(packed & ((1 << COUNT) - 1)));
            let (exponent, seven) = (u32::from(at >> BITS & 0xff), u64::from(at & 0x7f));
            let negative = at >> 15 == 1;
            let high = u128::from(1 << BITS | seven) << 16;
            let bin = ((u64::from(exponent) + 896) << BITS | seven) + NORMAL;
            counts.push((signed(bin as usize, negative), count));
            // A 32-bit float is its mantissa times 2^(exponent - 150).
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

    /// Takes the counts per bin. `few` holds the counted values if they are few.
    pub(crate) fn flush_wide(
        &mut self,
        sparse: Option<&[f64]>,
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
            match sparse {
                Some(sparse) => sparse.iter().filter(|value| **value != 0.0).for_each(|value| {
                    let negative = if *value < 0.0 { BINS } else { 0 };
                    take(bins::bin(value.abs().to_bits()) + negative);
                }),
                None => (0..2 * BINS).for_each(take),
            }
            self.some_wide = false;
        }
        for (at, power) in self.powers.iter_mut().enumerate().filter(|(_, power)| power.sum > 0) {
            let Power { sum, squares } = std::mem::take(power);
            // Subnormal numbers have the same exponent as the smallest normal ones.
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

/// Returns the bin number for a bin and a sign.
fn signed(bin: usize, negative: bool) -> BinNumber {
    let key = 1 + bin as BinNumber;
    if negative { -key } else { key }
}
