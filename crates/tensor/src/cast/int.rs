//! Casts of integers. To other integers they wrap around, as in torch.

use statelens_checkpoint::DType;

use super::CastReport;
use super::outcome::{Outcome, convert};

macro_rules! write_ints {
    ($name:ident, $int:ty) => {
        /// Writes integers as integers or 64-bit floats.
        pub(super) fn $name(values: &[$int], to: &DType, out: &mut [u8]) -> CastReport {
            macro_rules! wrap {
                ($to:ty) => {
                    wrap(values, out, |value| {
                        // In an integer of the same size, only the sign may differ.
                        const SIGN: bool = size_of::<$to>() == size_of::<$int>()
                            && (<$to>::MIN == 0) != (<$int>::MIN == 0);
                        let wrapped = value as $to;
                        let fits = !SIGN | (value as i64 >= 0);
                        (wrapped.to_le_bytes(), (wrapped as $int == value) & fits)
                    })
                };
            }
            match to {
                DType::U8 => wrap!(u8),
                DType::U16 => wrap!(u16),
                DType::U32 => wrap!(u32),
                DType::U64 => wrap!(u64),
                DType::I8 => wrap!(i8),
                DType::I16 => wrap!(i16),
                DType::I32 => wrap!(i32),
                DType::I64 => wrap!(i64),
                DType::F64 => convert(values, out, |value: $int| {
                    let (double, rest) = value.halves().sum();
                    let outcome = Outcome {
                        zero: value == 0,
                        changed: rest != 0.0,
                        overflowed: false,
                        zero_now: false,
                        error: rest as f32 / double as f32,
                    };
                    (double.to_le_bytes(), outcome)
                }),
                _ => CastReport::default(),
            }
        }
    };
}

write_ints!(write_i64, i64);
write_ints!(write_u64, u64);

/// The upper and the lower 32 bits of an integer as floats, whose sum is the integer.
#[derive(Clone, Copy)]
pub(super) struct Halves {
    upper: f64,
    lower: f64,
}

/// An integer that can be split without a conversion of 64 bits, which processors without AVX-512
/// do one by one.
pub(super) trait Split {
    fn halves(self) -> Halves;
}

/// The bits of 2^52 and of 2^84: the lower 32 bits of such a float can be replaced by those of an
/// integer, which adds the integer, or 2^32 times it.
const TWO_52: u64 = 0x433 << 52;
const TWO_84: u64 = 0x453 << 52;

impl Split for u64 {
    #[inline(always)]
    fn halves(self) -> Halves {
        let upper = f64::from_bits(TWO_84 | self >> 32) - f64::from_bits(TWO_84);
        let lower = f64::from_bits(TWO_52 | self & 0xffff_ffff) - f64::from_bits(TWO_52);
        Halves { upper, lower }
    }
}

impl Split for i64 {
    #[inline(always)]
    fn halves(self) -> Halves {
        // Moves the range to that of `u64`, and back by 2^63.
        const MOVED: f64 = f64::from_bits(TWO_84) + 9_223_372_036_854_775_808.0;
        let moved = self as u64 ^ 1 << 63;
        let upper = f64::from_bits(TWO_84 | moved >> 32) - MOVED;
        let lower = f64::from_bits(TWO_52 | moved & 0xffff_ffff) - f64::from_bits(TWO_52);
        Halves { upper, lower }
    }
}

impl Halves {
    /// Returns the nearest float, ties to even, and what remains of the integer.
    #[inline(always)]
    pub(super) fn sum(self) -> (f64, f64) {
        let sum = self.upper + self.lower;
        // Exact, since `upper` is zero or the larger one (Dekker, "A floating-point technique for
        // extending the available precision").
        (sum, self.lower - (sum - self.upper))
    }

    /// Returns the float rounded to odd.
    #[inline(always)]
    pub(super) fn odd(self) -> f64 {
        let (sum, rest) = self.sum();
        let too_large = sum * rest < 0.0;
        let truncated = sum.to_bits() - u64::from(too_large);
        f64::from_bits(truncated | u64::from(rest != 0.0))
    }
}

/// Converts to an integer type; `cast` returns the bytes and whether the number is in range.
fn wrap<T: Copy + PartialEq + Default, const N: usize>(
    values: &[T],
    out: &mut [u8],
    cast: impl Fn(T) -> ([u8; N], bool),
) -> CastReport {
    convert(values, out, |value| {
        let (bytes, inside) = cast(value);
        let outcome = Outcome {
            zero: value == T::default(),
            changed: !inside,
            overflowed: !inside,
            zero_now: false,
            error: 0.0,
        };
        (bytes, outcome)
    })
}
