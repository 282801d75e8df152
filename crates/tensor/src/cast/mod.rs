//! Casts from one dtype to another: round to nearest, ties to even.

mod float;
mod int;
mod lanes;
mod outcome;
mod range;
mod small;
mod table;

use std::sync::Arc;

use statelens_checkpoint::{DType, Error, Result};

use lanes::Lanes;
pub use lanes::widen_f16;
pub use range::Narrowing;
pub use small::decode_f4;
use table::Table;

/// Elements that are cast at once, so that they stay in the processor's L1 cache.
const BLOCK: usize = 2048;

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CastReport {
    /// Elements that were cast; a complex number counts as two.
    pub elements: u64,
    pub changed: u64,
    /// Changed elements that were out of the dtype's range: a finite number that became an
    /// infinity, a NaN or some other number; an infinity or NaN that the dtype does not have.
    /// Includes numbers that became the dtype's largest although that is not the nearest.
    pub overflowed: u64,
    /// Elements that were not zero.
    pub nonzero: u64,
    /// Nonzero elements that became zero.
    pub flushed: u64,
    /// The largest relative error of all other elements.
    pub worst: f64,
}

impl CastReport {
    pub fn add(&mut self, other: Self) {
        self.elements += other.elements;
        self.changed += other.changed;
        self.overflowed += other.overflowed;
        self.nonzero += other.nonzero;
        self.flushed += other.flushed;
        self.worst = self.worst.max(other.worst);
    }

    /// Returns whether more than rounding happened: a number overflowed, or more than 1 % of the
    /// nonzero numbers became zero.
    pub fn is_false(&self) -> bool {
        self.overflowed > 0 || self.is_flushed()
    }

    /// Returns whether more than 1 % of the nonzero numbers became zero.
    pub fn is_flushed(&self) -> bool {
        self.flushed.saturating_mul(100) > self.nonzero
    }
}

#[derive(Debug)]
pub struct Cast {
    from: DType,
    to: DType,
    sizes: (usize, usize),
    lanes: Lanes,
    table: Option<Arc<Table>>,
    pub(crate) report: CastReport,
}

impl Cast {
    /// Creates the cast. Fails for dtypes that are not numbers.
    pub fn new(from: &DType, to: &DType) -> Result<Self> {
        let pair = match (component(from), component(to)) {
            (Some(from), Some(to)) => Some((from, to)),
            (None, None) => Some((from.clone(), to.clone())),
            _ => None,
        };
        match pair {
            Some((from, to)) if readable(&from) && lanes::is_number(&to) => Ok(Self {
                sizes: (from.itemsize() as usize, to.itemsize() as usize),
                from,
                to,
                lanes: Lanes::default(),
                table: None,
                report: CastReport::default(),
            }),
            _ => Err(Error::unsupported(format!("elements of {from} can't be cast to {to}"))),
        }
    }

    /// Returns the target dtype; for complex numbers that of their parts.
    pub fn target(&self) -> &DType {
        &self.to
    }

    pub fn report(&self) -> CastReport {
        self.report
    }

    /// Casts whole elements; clears `out` first.
    pub fn run(&mut self, stored: &[u8], out: &mut Vec<u8>) {
        let count = stored.len() / self.sizes.0;
        out.resize(count * self.sizes.1, 0);
        let elements = self.report.elements + count as u64;
        if self.table.is_none() {
            self.table = Table::of(&self.from, &self.to, elements);
        }
        let report = match &self.table {
            Some(table) => table.run(stored, out, self.sizes),
            None => {
                let blocks = stored.chunks(BLOCK * self.sizes.0);
                let mut report = CastReport::default();
                for (stored, out) in blocks.zip(out.chunks_mut(BLOCK * self.sizes.1)) {
                    self.lanes.read(&self.from, &self.to, stored);
                    report.add(self.lanes.write(&self.to, out));
                }
                report
            }
        };
        self.report.add(CastReport { elements: count as u64, ..report });
    }
}

fn readable(dtype: &DType) -> bool {
    lanes::is_number(dtype) || plain(dtype).is_some()
}

/// Returns the torch dtype that holds all numbers of a dtype that only `ml_dtypes` has: `int8` for
/// `int4`, `float16` for the floats. `None` for all others.
pub fn plain(dtype: &DType) -> Option<DType> {
    lanes::plain(dtype)
}

/// Returns the dtype of the parts of a complex number.
fn component(dtype: &DType) -> Option<DType> {
    match dtype {
        DType::C32 => Some(DType::F16),
        DType::BC32 => Some(DType::BF16),
        DType::C64 => Some(DType::F32),
        DType::C128 => Some(DType::F64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cast(from: DType, to: DType, stored: &[u8]) -> (Vec<u8>, CastReport) {
        let mut cast = Cast::new(&from, &to).unwrap();
        let mut out = vec![1; 3];
        cast.run(stored, &mut out);
        (out, cast.report)
    }

    fn bytes<const N: usize>(items: impl IntoIterator<Item = [u8; N]>) -> Vec<u8> {
        items.into_iter().flatten().collect()
    }

    /// Returns bit patterns of 32-bit floats near every border that matters, and many others.
    fn singles() -> Vec<u32> {
        let mut bits = Vec::new();
        for high in 0..=0xffffu32 {
            for low in [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, 0x0fff, 0x1000, 0x1001, 0x2000] {
                bits.push(high << 16 | low);
            }
        }
        let mut seed = 1u32;
        for _ in 0..200_000 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            bits.push(seed);
        }
        bits
    }

    #[test]
    fn half_casts_match_another_implementation() {
        let bits = singles();
        let stored = bytes(bits.iter().map(|bits| bits.to_le_bytes()));
        let (f16, report) = cast(DType::F32, DType::F16, &stored);
        let (bf16, b_report) = cast(DType::F32, DType::BF16, &stored);
        // The expected counts, by plain arithmetic on the results of the other implementation.
        let (mut of_f16, mut of_bf16) = (CastReport::default(), CastReport::default());
        let count = |counts: &mut CastReport, value: f32, after: f32| {
            counts.elements += 1;
            counts.nonzero += u64::from(value != 0.0);
            if value.is_nan() || after == value {
                return;
            }
            counts.changed += 1;
            match after {
                after if after.is_infinite() => counts.overflowed += 1,
                0.0 => counts.flushed += 1,
                after => {
                    counts.worst = counts.worst.max(f64::from((after - value).abs() / value.abs()))
                }
            }
        };
        for (index, bits) in bits.iter().enumerate() {
            let value = f32::from_bits(*bits);
            let expected = half::f16::from_f32(value);
            let at = index * 2..index * 2 + 2;
            assert_eq!(f16[at.clone()], expected.to_le_bytes(), "{bits:08x}");
            count(&mut of_f16, value, expected.to_f32());
            let expected = half::bf16::from_f32(value);
            assert_eq!(bf16[at], expected.to_le_bytes(), "{bits:08x}");
            count(&mut of_bf16, value, expected.to_f32());
        }
        assert!(of_f16.overflowed > 0 && of_bf16.overflowed > 0 && of_f16.flushed > 0);
        assert_eq!(report, of_f16);
        assert_eq!(b_report, of_bf16);
        // The slow path counts the same.
        let doubles = bytes(bits.iter().map(|bits| f64::from(f32::from_bits(*bits)).to_le_bytes()));
        for (to, fast) in [(DType::F16, of_f16), (DType::BF16, of_bf16)] {
            let (_, slow) = cast(DType::F64, to, &doubles);
            assert_eq!(CastReport { worst: fast.worst, ..slow }, fast);
            assert!((slow.worst - fast.worst).abs() < 1e-6, "{slow:?} {fast:?}");
        }
    }

    #[test]
    fn half_floats_widen_exactly() {
        let stored = bytes((0..=u16::MAX).map(u16::to_le_bytes));
        let (f16, report) = cast(DType::F16, DType::F32, &stored);
        assert_eq!((report.changed, report.overflowed), (0, 0));
        let (bf16, _) = cast(DType::BF16, DType::F32, &stored);
        let (wide, _) = cast(DType::F16, DType::F64, &stored);
        for bits in 0..=u16::MAX {
            let at = usize::from(bits) * 4;
            let at = at..at + 4;
            let half = half::f16::from_bits(bits);
            assert_eq!(f16[at.clone()], half.to_f32().to_le_bytes(), "{bits:04x}");
            // A NaN's payload is unchanged, quiet or not.
            assert_eq!(bf16[at.clone()], (u32::from(bits) << 16).to_le_bytes());
            let value = f64::from_le_bytes(wide[at.start * 2..at.end * 2].try_into().unwrap());
            assert!(value == half.to_f64() || value.is_nan() && half.is_nan());
        }
    }

    #[test]
    fn rounds_doubles_once() {
        // Just above the middle between two 16-bit floats. Rounded to 32 bits first, it would
        // become the middle and then be rounded down to even.
        for (to, bits, expected) in [(DType::BF16, 7, 0x3f81u16), (DType::F16, 10, 0x3c01)] {
            let value = 1.0 + 2f64.powi(-bits - 1) + 2f64.powi(-40);
            let (out, report) = cast(DType::F64, to, &value.to_le_bytes());
            assert_eq!(out, expected.to_le_bytes());
            assert_eq!((report.elements, report.changed, report.overflowed), (1, 1, 0));
        }
        let value = (1i64 << 40) + (1 << 32) + 1;
        let (out, _) = cast(DType::I64, DType::BF16, &value.to_le_bytes());
        assert_eq!(
            out,
            half::bf16::from_f64((1i64 << 40) as f64 * (1.0 + 2f64.powi(-7))).to_le_bytes()
        );
    }

    #[test]
    fn e4m3fn_saturates_and_counts_overflow() {
        let floats = [448.0f32, 464.0, 465.0, -1e9, f32::INFINITY, f32::NAN];
        let bytes: Vec<u8> = floats.iter().flat_map(|value| value.to_le_bytes()).collect();
        let (out, report) = cast(DType::F32, DType::F8E4M3FN, &bytes);
        assert_eq!(out, [0x7e, 0x7e, 0x7e, 0xfe, 0x7e, 0x7f]);
        assert_eq!((report.elements, report.changed, report.overflowed), (6, 4, 3));
        // The same for integers.
        let (out, report) = cast(DType::I32, DType::F8E4M3FN, &1000i32.to_le_bytes());
        assert_eq!((out, report.overflowed), (vec![0x7e], 1));
    }

    #[test]
    fn counts_losses_of_every_dtype_pair() {
        use DType::*;
        let floats = [
            F64, F32, F16, BF16, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, U8, U16, U32, U64, I8,
            I16, I32, I64,
        ];
        // Too large for all but the widest, too small for all but those, and one that is unchanged.
        let doubles = bytes([1e300f64, 1e-300, 1.0].map(f64::to_le_bytes));
        for to in &floats {
            let (_, report) = cast(F64, to.clone(), &doubles);
            let expected = if *to == F64 { (0, 0) } else { (1, 1) };
            assert_eq!((report.overflowed, report.flushed), expected, "{to}: {report:?}");
            assert_eq!((report.elements, report.nonzero), (3, 3), "{to}");
            assert_eq!(report.is_false(), *to != F64);
            // The possible losses are predicted.
            let narrowing = Narrowing::of(&F64, to);
            assert_eq!(narrowing.is_some(), *to != F64, "{to}");
        }
        // Sixteen bits of zero to one make every number of a dtype: no loss may be predicted if
        // none occurs.
        for from in &floats {
            for to in &floats {
                let size = from.itemsize() as usize;
                let stored: Vec<u8> = match size {
                    1 => (0..=255).collect(),
                    _ => (0..=u16::MAX)
                        .flat_map(|high| {
                            let mut item = vec![0x55; size - 2];
                            item.extend(high.to_le_bytes());
                            item
                        })
                        .collect(),
                };
                let (_, report) = cast(from.clone(), to.clone(), &stored);
                let can = Narrowing::of(from, to);
                let can = can.as_ref();
                let name = format!("{from} to {to}: {can:?}, {report:?}");
                assert!(report.overflowed == 0 || can.is_some_and(Narrowing::overflows), "{name}");
                assert!(
                    report.flushed == 0 || can.is_some_and(|can| can.underflow.is_some()),
                    "{name}"
                );
                assert!(
                    report.worst == 0.0 || can.is_some_and(|can| can.digits.is_some()),
                    "{name}"
                );
            }
        }
        let complex = bytes([1e300f64, 1e-300].map(f64::to_le_bytes));
        let (_, report) = cast(C128, C64, &complex);
        assert_eq!((report.elements, report.overflowed, report.flushed), (2, 1, 1));
        assert!(Narrowing::of(&C128, &C64).is_some() && Narrowing::of(&C64, &C128).is_none());
    }

    #[test]
    fn integers_wrap_and_floats_saturate() {
        let (out, report) =
            cast(DType::I32, DType::U8, &bytes([-1, 255, 256].map(i32::to_le_bytes)));
        assert_eq!(out, [255, 255, 0]);
        assert_eq!((report.elements, report.changed, report.overflowed), (3, 2, 2));
        let floats = [2.9f32, -2.9, 1e9, f32::NAN, -0.0, -1e9];
        let (out, report) = cast(DType::F32, DType::I8, &bytes(floats.map(f32::to_le_bytes)));
        assert_eq!(out, [2, (-2i8) as u8, 127, 0, 0, 128]);
        assert_eq!((report.elements, report.changed, report.overflowed), (6, 6, 3));
        let (_, report) = cast(DType::F32, DType::I8, &0.4f32.to_le_bytes());
        assert_eq!((report.nonzero, report.flushed), (1, 1));
        let (out, report) =
            cast(DType::U64, DType::F32, &bytes([u64::MAX, 1].map(u64::to_le_bytes)));
        assert_eq!(out, bytes([18446744073709551616f32, 1.0].map(f32::to_le_bytes)));
        assert_eq!((report.elements, report.changed, report.overflowed), (2, 1, 0));
        assert!(report.worst > 0.0 && report.worst < 1e-7, "{report:?}");
        let (out, _) = cast(DType::F32, DType::Bool, &bytes(floats.map(f32::to_le_bytes)));
        assert_eq!(out, [1, 1, 1, 1, 0, 1]);
        let (out, _) = cast(DType::Bool, DType::F16, &[0, 1]);
        assert_eq!(out, [0, 0, 0, 0x3c]);
    }

    /// Checks bytes and counts of floats around every power of two, and of many others, against the
    /// language's own conversion.
    #[test]
    fn floats_truncate_as_the_language_does() {
        let powers = (0..2048u64).flat_map(|exponent| {
            let power = exponent << 52;
            let (half, single) = (power | 1 << 51, power | 1 << 29);
            [
                power,
                power + 1,
                power.wrapping_sub(1),
                half,
                single,
                half + 1,
                power | u64::MAX >> 12,
            ]
        });
        let mut seed = 1u64;
        let others = std::iter::repeat_with(move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Exponents around those of integers.
            seed & !(0x7ff << 52) | (1000 + seed % 100) << 52
        });
        let bits: Vec<u64> = powers.chain(others.take(20_000)).collect();
        let doubles: Vec<f64> =
            bits.iter().flat_map(|bits| [f64::from_bits(*bits), -f64::from_bits(*bits)]).collect();
        let singles: Vec<f32> = doubles.iter().map(|value| *value as f32).collect();
        macro_rules! check {
            ($($int:ident $dtype:ident),*) => {$(
                check!(F64, doubles, f64, $int, $dtype);
                check!(F32, singles, f32, $int, $dtype);
            )*};
            ($from:ident, $values:ident, $float:ty, $int:ident, $dtype:ident) => {
                let stored = bytes($values.iter().map(|value| value.to_le_bytes()));
                let (out, report) = cast(DType::$from, DType::$dtype, &stored);
                let mut expected = CastReport { elements: $values.len() as u64, ..report };
                (expected.changed, expected.overflowed, expected.flushed) = (0, 0, 0);
                for (value, found) in $values.iter().zip(out.as_chunks().0) {
                    let int = *value as $int;
                    assert_eq!($int::from_le_bytes(*found), int, "{value:e} to {}", stringify!($int));
                    let whole = value.trunc();
                    let fits = whole >= $int::MIN as $float
                        && whole < ($int::MAX / 2 + 1) as $float * 2.0;
                    let is_same = fits && whole == *value && (int != 0 || value.is_sign_positive());
                    expected.changed += u64::from(!is_same);
                    expected.overflowed += u64::from(!fits);
                    expected.flushed += u64::from(fits && int == 0 && *value != 0.0);
                }
                assert_eq!(report, expected, "{} to {}", stringify!($from), stringify!($int));
                assert!(report.worst > 0.3 && report.worst <= 0.5, "{report:?}");
            };
        }
        check!(u8 U8, u16 U16, u32 U32, u64 U64, i8 I8, i16 I16, i32 I32, i64 I64);
    }

    #[test]
    fn complex_numbers_count_as_two() {
        let stored = bytes([1.0f64, -0.5].map(f64::to_le_bytes));
        let (out, report) = cast(DType::C128, DType::C64, &stored);
        assert_eq!(out, bytes([1.0f32, -0.5].map(f32::to_le_bytes)));
        assert_eq!(report.elements, 2);
        assert!(Cast::new(&DType::C64, &DType::F32).is_err());
        assert!(Cast::new(&DType::F32, &DType::Bits8).is_err());
    }

    fn scale(value: f64) -> u8 {
        cast(DType::F64, DType::F8E8M0FNU, &value.to_le_bytes()).0[0]
    }

    #[test]
    fn scales_round_to_powers_of_two() {
        for bits in 0..=254u8 {
            let value = 2f64.powi(i32::from(bits) - 127);
            assert_eq!(scale(value), bits);
            assert_eq!(scale(-value), bits);
            if bits > 0 {
                assert_eq!(scale(value * 1.5), bits + 1);
                assert_eq!(scale((value * 1.5).next_down()), bits);
            }
        }
        // The middle of the two smallest rounds down: a 32-bit subnormal has no leading one.
        let middle = 1.5 * 2f64.powi(-127);
        assert_eq!(scale(middle), 0);
        assert_eq!(scale(middle.next_up()), 1);
        assert_eq!(scale(0.0), 0);
        assert_eq!(scale(f64::NAN), 255);
        assert_eq!(scale(f64::INFINITY), 255);
    }

    /// Checks every pattern, every middle of two, and its neighbours against integer arithmetic,
    /// and the counts against plain arithmetic on the decoded results.
    #[test]
    fn small_floats_round_as_the_reference() {
        for to in [
            DType::F16,
            DType::BF16,
            DType::F8E4M3FN,
            DType::F8E4M3FNUZ,
            DType::F8E5M2,
            DType::F8E5M2FNUZ,
        ] {
            let small = small::Small::of(&to).unwrap();
            let size = to.itemsize() as usize;
            let mut doubles = vec![0.0, f64::MIN_POSITIVE, 1e300, 1e-300, f64::INFINITY, f64::NAN];
            let max = small.parts().max;
            let mut value = 0.0;
            let mut bits = 0u16;
            while value < max {
                let next = small.decode(bits + 1);
                let middle = value + (next - value) / 2.0;
                doubles.extend([next, middle, middle.next_up(), middle.next_down()]);
                (value, bits) = (next, bits + 1);
            }
            let step = max - small.decode(bits - 1);
            doubles.extend([max + step / 2.0, (max + step / 2.0).next_up(), max + step]);
            doubles.extend(doubles.clone().iter().map(|value| -value));
            for doubles in [doubles.clone(), doubles.repeat(1 + 200_000 / doubles.len())] {
                let stored = bytes(doubles.iter().map(|value| value.to_le_bytes()));
                let (out, report) = cast(DType::F64, to.clone(), &stored);
                let (mut changed, mut overflowed, mut flushed) = (0, 0, 0);
                for (value, out) in doubles.iter().zip(out.chunks(size)) {
                    let mut pattern = [0; 2];
                    pattern[..size].copy_from_slice(out);
                    let pattern = u16::from_le_bytes(pattern);
                    assert_eq!(pattern, small.encode(*value), "{to} {value:e}");
                    let after = small.decode(pattern);
                    if value.is_nan() {
                        continue;
                    }
                    let beyond = after.is_finite() != value.is_finite()
                        || after.is_nan()
                        || small.parts().overflow_above > 0.0
                            && value.abs() > small.parts().overflow_above;
                    changed += u64::from(after.to_bits() != value.to_bits());
                    overflowed += u64::from(beyond);
                    flushed += u64::from(after == 0.0 && *value != 0.0);
                }
                let counts = (report.changed, report.overflowed, report.flushed);
                assert_eq!(counts, (changed, overflowed, flushed), "{to}");
            }
        }
    }

    #[test]
    fn casts_64_bit_integers_to_the_nearest_floats() {
        let mut seed = 1u64;
        let mut values = vec![0u64, 1];
        for shift in 1..64 {
            let power = 1u64 << shift;
            values.extend([power - 1, power, power + 1, power | power >> 1, !power]);
            for below in [24, 25, 53, 54] {
                // The middle between two floats, and both sides of it.
                let middle = power | power >> 1 | (power >> below);
                values.extend([middle, middle + 1, middle.wrapping_sub(1)]);
            }
            for _ in 0..100 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                values.push(seed >> (64 - shift));
            }
        }
        values.extend(values.clone().iter().map(|value| value.wrapping_neg()));
        let stored = bytes(values.iter().map(|value| value.to_le_bytes()));
        let whole: [(DType, Vec<i128>); 2] = [
            (DType::U64, values.iter().map(|value| (*value).into()).collect()),
            (DType::I64, values.iter().map(|value| (*value as i64).into()).collect()),
        ];
        for (from, whole) in whole {
            let (out, report) = cast(from.clone(), DType::F64, &stored);
            let doubles = whole.iter().map(|value| *value as f64);
            assert_eq!(out, bytes(doubles.clone().map(f64::to_le_bytes)), "{from}");
            let changed =
                whole.iter().zip(doubles).filter(|(value, double)| *double as i128 != **value);
            assert_eq!(report.changed, changed.count() as u64, "{from}");
            assert!(report.worst > 0.9e-16 && report.worst < 1.2e-16, "{report:?}");
            let (out, _) = cast(from.clone(), DType::F32, &stored);
            let singles = whole.iter().map(|value| *value as f32);
            assert_eq!(out, bytes(singles.map(f32::to_le_bytes)), "{from}");
        }
    }

    /// Casting many elements, which uses a table, must give the bytes and counts of casting few.
    #[test]
    fn tables_agree_with_single_casts() {
        use DType::*;
        let dtypes = [F16, BF16, F8E4M3FN, F8E5M2FNUZ, F8E8M0FNU, U8, U16, I8, I16, Bool];
        for from in &dtypes {
            let size = from.itemsize() as usize;
            let patterns = if *from == Bool { 2 } else { 1u32 << (8 * size) };
            let stored: Vec<u8> = (0..patterns)
                .flat_map(|pattern| {
                    pattern.to_le_bytes().into_iter().take(size).collect::<Vec<_>>()
                })
                .collect();
            let many = stored.repeat(2 + 70_000 / patterns as usize);
            let wide = [F32, F64, U32, I32, U64, I64];
            for to in dtypes.iter().chain(&wide) {
                let (out, report) = cast(from.clone(), to.clone(), &many);
                let mut single = Cast::new(from, to).unwrap();
                let (mut all, mut one) = (Vec::new(), Vec::new());
                // Each part is too short for a table.
                for part in stored.chunks(512 * size) {
                    let mut cast = Cast::new(from, to).unwrap();
                    cast.run(part, &mut one);
                    all.extend_from_slice(&one);
                    single.report.add(cast.report);
                }
                assert_eq!(out, all.repeat(many.len() / stored.len()), "{from} to {to}");
                let times = (many.len() / stored.len()) as u64;
                let few = single.report;
                assert_eq!(report.changed, few.changed * times, "{from} to {to}");
                assert_eq!(report.overflowed, few.overflowed * times, "{from} to {to}");
                assert_eq!(report.nonzero, few.nonzero * times, "{from} to {to}");
                assert_eq!(report.flushed, few.flushed * times, "{from} to {to}");
                assert_eq!(report.worst, few.worst, "{from} to {to}");
            }
        }
    }
}
