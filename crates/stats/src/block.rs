//! Counts blocks of elements.

use statelens_tensor::widest;

use crate::Summary;
use crate::bins::{self, BINS, NORMAL};
use crate::kind::Half;
use crate::tables::{COUNT, CountTables, HALVES, Power, Single, sized};

/// The summary and tables that a block of elements is counted in.
pub(crate) struct BlockTally<'a> {
    pub(crate) summary: &'a mut Summary,
    pub(crate) tables: &'a mut CountTables,
    /// The index of the block's first value in the tensor.
    pub(crate) at: u64,
}

impl BlockTally<'_> {
    /// Counts elements of one byte, each of which holds one or two values.
    pub(crate) fn bytes(
        &mut self,
        values: &[f64; 256],
        seconds: Option<&[f64; 256]>,
        block: &[u8],
    ) {
        // Several tables, so that consecutive equal elements do not wait for each other's
        // increment.
        let mut counts = [[0u32; 256]; 8];
        let (eights, rest) = block.as_chunks::<8>();
        for eight in eights {
            for (counts, byte) in counts.iter_mut().zip(eight) {
                counts[usize::from(*byte)] += 1;
            }
        }
        rest.iter().for_each(|byte| counts[0][usize::from(*byte)] += 1);
        let table = sized(&mut self.tables.bytes, 256);
        let (mut nan, mut inf, mut most) = (false, false, None::<f64>);
        for code in 0..256 {
            let count: u32 = counts.iter().map(|counts| counts[code]).sum();
            if count == 0 {
                continue;
            }
            table[code] += u64::from(count);
            for value in [Some(values[code]), seconds.map(|seconds| seconds[code])] {
                match value {
                    None => {}
                    Some(value) if value.is_nan() => nan = true,
                    Some(value) if value.is_infinite() => inf = true,
                    Some(value) => most = Some(most.map_or(value.abs(), |it| it.max(value.abs()))),
                }
            }
        }
        let each = || {
            let values = block.iter().map(|byte| {
                [Some(values[usize::from(*byte)]), seconds.map(|it| it[usize::from(*byte)])]
            });
            values.flatten().flatten()
        };
        self.first(nan, inf, || each().position(f64::is_nan), || each().position(f64::is_infinite));
        if let Some(most) = most {
            self.largest(most, || each().position(|value| value.abs() == most));
        }
    }

    /// Counts elements of two bytes.
    pub(crate) fn halves(&mut self, half: Half, block: &[[u8; 2]]) {
        match half {
            Half::F16 => self.codes(half, block, 0x7c00, |code| code & 0x7fff),
            Half::BF16 => self.codes(half, block, 0x7f80, |code| code & 0x7fff),
            Half::I16 => self.codes(half, block, u16::MAX, |code| (code as i16).unsigned_abs()),
            Half::U16 => self.codes(half, block, u16::MAX, |code| code),
        }
    }

    fn codes(
        &mut self,
        half: Half,
        block: &[[u8; 2]],
        infinity: u16,
        magnitude: impl Fn(u16) -> u16,
    ) {
        let of = |bytes: &[u8; 2]| magnitude(u16::from_le_bytes(*bytes));
        let mut most = widest(
            #[inline(always)]
            || block.iter().map(of).fold(0, u16::max),
        );
        let floats = infinity != u16::MAX;
        if floats && most >= infinity {
            let (nan, inf) = (|it: &[u8; 2]| of(it) > infinity, |it: &[u8; 2]| of(it) == infinity);
            self.first(true, true, || block.iter().position(nan), || block.iter().position(inf));
            let finite = block.iter().map(of).filter(|it| *it < infinity);
            most = finite.fold(0, u16::max);
        }
        // If all values are infinite, the search finds nothing, which is right.
        let value = if floats { half.value(most) } else { most.into() };
        self.largest(value, || block.iter().position(|it| of(it) == most));
        let (one, other) = sized(&mut self.tables.halves, 2 * HALVES).split_at_mut(HALVES);
        let (Some(one), Some(other)) =
            (one.first_chunk_mut::<HALVES>(), other.first_chunk_mut::<HALVES>())
        else {
            return;
        };
        let (pairs, rest) = block.as_chunks::<2>();
        for [first, second] in pairs {
            one[usize::from(u16::from_le_bytes(*first))] += 1;
            other[usize::from(u16::from_le_bytes(*second))] += 1;
        }
        rest.iter().for_each(|it| one[usize::from(u16::from_le_bytes(*it))] += 1);
    }

    /// Counts 32-bit floats.
    pub(crate) fn singles(&mut self, block: &[[u8; 4]]) {
        const INFINITY: u32 = 0x7f80_0000;
        const NORMAL: u32 = 0x0080_0000;
        let bits = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes);
        let magnitude = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes) & 0x7fff_ffff;
        self.summary.count += block.len() as u64;
        let (mut min, mut max) = (f32::INFINITY, f32::NEG_INFINITY);
        if let Some((low, high, zeros)) = range_and_zeros(block) {
            (min, max) = (low, high);
            self.tables.zeros += u64::from(zeros);
            let table = sized(&mut self.tables.singles, HALVES);
            let Some(table) = table.first_chunk_mut::<HALVES>() else { return };
            count_singles(table, block);
            // Zeros are counted above.
            (table[0], table[HALVES / 2]) = ([0; 2], [0; 2]);
        } else {
            let (mut nan, mut inf) = (0, [0u64; 2]);
            for bytes in block {
                let (bits, magnitude) = (bits(bytes), magnitude(bytes));
                let value = f32::from_bits(bits);
                match magnitude {
                    0 => self.tables.zeros += 1,
                    1..NORMAL => {
                        self.summary.subnormal += 1;
                        Wide::of(self.tables).add(f64::from(value).to_bits());
                    }
                    NORMAL..INFINITY => {
                        let low = u64::from(bits & 0xffff);
                        let bin =
                            &mut sized(&mut self.tables.singles, HALVES)[(bits >> 16) as usize];
                        bin[0] += 1 << COUNT | low;
                        bin[1] += low * low;
                    }
                    INFINITY => {
                        inf[(bits >> 31) as usize] += 1;
                        continue;
                    }
                    _ => {
                        nan += 1;
                        continue;
                    }
                }
                (min, max) = (min.min(value), max.max(value));
            }
            self.summary.nan += nan;
            self.summary.pos_inf += inf[0];
            self.summary.neg_inf += inf[1];
            self.first(
                nan > 0,
                inf[0] + inf[1] > 0,
                || block.iter().position(|it| magnitude(it) > INFINITY),
                || block.iter().position(|it| magnitude(it) == INFINITY),
            );
        }
        if min <= max {
            self.summary.extend(min.into(), max.into());
            let most = min.abs().max(max.abs());
            self.largest(most.into(), || {
                block.iter().position(|it| magnitude(it) == most.to_bits())
            });
        }
    }

    /// Counts doubles given as bits. Magnitudes below `normal` are subnormal in the tensor's dtype.
    pub(crate) fn doubles(&mut self, normal: f64, numbers: impl Iterator<Item = u64> + Clone) {
        const INFINITY: u64 = 0x7ff << 52;
        let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
        let (mut nan, mut inf, mut count, mut zeros, mut subnormal) = (0, [0u64; 2], 0, 0, 0);
        let mut wide = Wide::of(self.tables);
        for bits in numbers.clone() {
            count += 1;
            let magnitude = bits & (u64::MAX >> 1);
            if magnitude >= INFINITY {
                match magnitude {
                    INFINITY => inf[(bits >> 63) as usize] += 1,
                    _ => nan += 1,
                }
                continue;
            }
            let value = f64::from_bits(bits);
            min = if value < min { value } else { min };
            max = if value > max { value } else { max };
            if magnitude == 0 {
                zeros += 1;
                continue;
            }
            subnormal += u64::from(magnitude < normal.to_bits());
            wide.add(bits);
        }
        self.tables.zeros += zeros;
        self.summary.subnormal += subnormal;
        self.summary.count += count;
        self.summary.nan += nan;
        self.summary.pos_inf += inf[0];
        self.summary.neg_inf += inf[1];
        let magnitudes = || numbers.clone().map(|bits| bits & (u64::MAX >> 1));
        self.first(
            nan > 0,
            inf[0] + inf[1] > 0,
            || magnitudes().position(|it| it > INFINITY),
            || magnitudes().position(|it| it == INFINITY),
        );
        if min <= max {
            self.summary.extend(min, max);
            let most = min.abs().max(max.abs());
            self.largest(most, || magnitudes().position(|it| it == most.to_bits()));
        }
    }

    /// Counts integers.
    pub(crate) fn ints<const N: usize>(
        &mut self,
        block: &[[u8; N]],
        value: impl Fn([u8; N]) -> i128,
    ) {
        let (mut low, mut high, mut zeros) = (i128::MAX, i128::MIN, 0);
        let mut whole = self.tables.whole;
        let table = sized(&mut self.tables.wide, 2 * BINS);
        self.tables.some_wide = true;
        for bytes in block {
            let int = value(*bytes);
            (low, high) = (low.min(int), high.max(int));
            if int == 0 {
                zeros += 1;
                continue;
            }
            let magnitude = int.unsigned_abs() as u64;
            let bin = bins::bin((magnitude as f64).to_bits());
            table[if int < 0 { bin + BINS } else { bin }] += 1;
            let whole = &mut whole[usize::from(int < 0)];
            whole.sum += u128::from(magnitude);
            let square = u128::from(magnitude) * u128::from(magnitude);
            let (squares, carry) = whole.squares.overflowing_add(square);
            whole.squares = squares;
            whole.carries += u64::from(carry);
        }
        self.tables.whole = whole;
        self.tables.zeros += zeros;
        let summary = &mut *self.summary;
        summary.count += block.len() as u64;
        if low <= high {
            let whole = summary.whole.map_or((low, high), |it| (it.0.min(low), it.1.max(high)));
            summary.whole = Some(whole);
            summary.extend(low as f64, high as f64);
            // Compared as doubles, so that the result does not depend on which of two integers that
            // round to the same double comes first.
            let most = low.unsigned_abs().max(high.unsigned_abs()) as f64;
            let at = || block.iter().position(|it| value(*it).unsigned_abs() as f64 == most);
            self.largest(most, at);
        }
    }

    /// Records the positions of the first NaN and the first infinity, if this block has any.
    fn first(
        &mut self,
        nan: bool,
        inf: bool,
        find_nan: impl FnOnce() -> Option<usize>,
        find_inf: impl FnOnce() -> Option<usize>,
    ) {
        let at = |found: Option<usize>| found.map(|found| self.at + found as u64);
        if nan && self.summary.first_nan.is_none() {
            self.summary.first_nan = at(find_nan());
        }
        if inf && self.summary.first_inf.is_none() {
            self.summary.first_inf = at(find_inf());
        }
    }

    /// Records the largest magnitude of this block if it exceeds all earlier ones.
    fn largest(&mut self, most: f64, find: impl FnOnce() -> Option<usize>) {
        if self.summary.largest.is_none_or(|(before, _)| most > before)
            && let Some(found) = find()
        {
            self.summary.largest = Some((most, self.at + found as u64));
        }
    }
}

/// The tables that doubles are counted in.
struct Wide<'a> {
    bins: &'a mut [u32],
    powers: &'a mut [Power],
}

impl<'a> Wide<'a> {
    fn of(tables: &'a mut CountTables) -> Self {
        tables.some_wide = true;
        Self { bins: sized(&mut tables.wide, 2 * BINS), powers: sized(&mut tables.powers, 4096) }
    }

    /// Counts a finite nonzero double, given as bits.
    fn add(&mut self, bits: u64) {
        let magnitude = bits & (u64::MAX >> 1);
        let fraction = bits & ((1 << 52) - 1);
        let (bin, mantissa) = match magnitude >> 52 {
            0 => (bins::bin(magnitude), fraction),
            _ => (((magnitude >> (52 - bins::BITS)) + NORMAL) as usize, fraction | 1 << 52),
        };
        self.bins[bin + (bits >> 63) as usize * BINS] += 1;
        let power = &mut self.powers[(bits >> 52) as usize];
        power.sum += u128::from(mantissa);
        power.squares += u128::from(mantissa) * u128::from(mantissa);
    }
}

/// Returns the minimum, the maximum and the number of zeros of floats that are all normal numbers
/// or zeros, where -0 is less than 0. Returns `None` if there are other values among them.
fn range_and_zeros(block: &[[u8; 4]]) -> Option<(f32, f32, u32)> {
    let (low, high, zeros, small) = widest(
        #[inline(always)]
        || {
            let (mut low, mut high) = (i32::MAX, i32::MIN);
            let (mut zeros, mut small) = (0u32, 0u32);
            for bytes in block {
                let bits = u32::from_le_bytes(*bytes);
                let magnitude = bits & 0x7fff_ffff;
                let ordered = bits as i32 ^ ((bits as i32 >> 31) as u32 >> 1) as i32;
                low = low.min(ordered);
                high = high.max(ordered);
                zeros += u32::from(magnitude == 0);
                small += u32::from(magnitude < f32::MIN_POSITIVE.to_bits());
            }
            (low, high, zeros, small)
        },
    );
    let number = |it: i32| f32::from_bits((it ^ ((it >> 31) as u32 >> 1) as i32) as u32);
    let (min, max) = (number(low), number(high));
    // Both are finite only if all values are: in this order, NaN is beyond the infinities.
    (min.is_finite() && max.is_finite() && small == zeros).then_some((min, max, zeros))
}

/// Counts floats that are not infinite, NaN or subnormal.
///
/// Not inlined, so that the compiler keeps this structure: four elements at a time, with all work
/// that does not need the table done first. That takes half the time.
#[inline(never)]
fn count_singles(table: &mut [Single; HALVES], block: &[[u8; 4]]) {
    let (fours, rest) = block.as_chunks::<4>();
    for four in fours {
        // Written as a loop because mapping an array is not always compiled to straight-line code.
        let (mut bins, mut counts, mut squares) = ([0; 4], [0; 4], [0; 4]);
        for at in 0..4 {
            let bits = u32::from_le_bytes(four[at]);
            let low = u64::from(bits & 0xffff);
            (bins[at], counts[at], squares[at]) =
                ((bits >> 16) as usize, low | 1 << COUNT, low * low);
        }
        for at in 0..4 {
            let bin = &mut table[bins[at]];
            let [count, square] = *bin;
            *bin = [count + counts[at], square + squares[at]];
        }
    }
    for bytes in rest {
        let bits = u32::from_le_bytes(*bytes);
        let low = u64::from(bits & 0xffff);
        let bin = &mut table[(bits >> 16) as usize];
        *bin = [bin[0] + (1 << COUNT | low), bin[1] + low * low];
    }
}
