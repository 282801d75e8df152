//! Casts of floats without branches, so that the compiler can process several elements at once.

use statelens_checkpoint::DType;

use super::CastReport;
use super::outcome::{Outcome, convert};
use super::small::Small;

const SIGN: u32 = 1 << 31;
const MANTISSA: u32 = 23;
const EXPONENT: u32 = 0xff << MANTISSA;
/// The bits of 2^23, whose last place is one.
const LAST_PLACE: u32 = (127 + MANTISSA) << MANTISSA;

/// Rounds to a small float other than `bfloat16`, to the nearest, ties to even.
///
/// Adding a power of two to the magnitude makes the addition round at the last bit that the target
/// keeps; the low bits of the sum are then those of the result.
pub(super) fn to_small<const N: usize>(
    values: &[f32],
    target: &Small,
    out: &mut [u8],
    store: impl Fn(u16) -> [u8; N],
) -> CastReport {
    let parts = target.parts();
    let kept = parts.mantissa;
    let (smallest, largest) = (parts.smallest_normal as f32, parts.max as f32);
    let highest = f32::from_bits(largest.to_bits() & EXPONENT) * 2.0;
    let shift = f32::from_bits((127 + MANTISSA - kept) << MANTISSA);
    let first_field = smallest.to_bits() >> MANTISSA;
    let limit = parts.overflow_above as f32;
    let (over, nan) = (u32::from(parts.over), u32::from(parts.nan));
    let payload_mask = u32::from(parts.payload_mask);
    let sign_shift = 31 - parts.sign_bit;
    convert(
        values,
        out,
        #[inline(always)]
        move |value: f32| {
            let bits = value.to_bits();
            let magnitude = f32::from_bits(bits & !SIGN);
            let power = f32::from_bits(bits & EXPONENT);
            let power = if power < smallest { smallest } else { power };
            let power = if power > highest { highest } else { power };
            let magic = power * shift;
            let sum = magnitude + magic;
            let rounded = sum - magic;
            let steps = sum.to_bits().wrapping_sub(magic.to_bits());
            let field = (power.to_bits() >> MANTISSA).wrapping_sub(first_field);
            let pattern = steps.wrapping_add(field << kept);
            let is_nan = value.is_nan();
            let is_over = rounded > largest;
            let pattern = if is_over { over } else { pattern };
            let payload = (bits >> (MANTISSA - kept)) & payload_mask;
            let pattern = if is_nan { nan | payload } else { pattern };
            let zero_now = pattern == 0;
            let sign = (bits & SIGN) >> sign_shift;
            let signed = if parts.unsigned_zero & zero_now { 0 } else { pattern | sign };
            let after = if is_over { largest } else { rounded };
            let keeps_infinity = (magnitude == f32::INFINITY) & parts.has_infinity;
            let overflowed =
                (is_over & (magnitude > limit) & !keeps_infinity) | (is_nan & !parts.has_nan);
            let lost_sign = parts.unsigned_zero & zero_now & (sign != 0);
            let outcome = Outcome {
                zero: magnitude == 0.0,
                changed: (!is_nan & (rounded != magnitude)) | overflowed | lost_sign,
                overflowed,
                zero_now,
                error: (after - magnitude) / magnitude,
            };
            (store(signed as u16), outcome)
        },
    )
}

/// Rounds to `bfloat16`, which has the exponents of `f32`; a NaN keeps its sign and the upper part
/// of its payload, and becomes quiet.
pub(super) fn to_bf16(values: &[f32], out: &mut [u8]) -> CastReport {
    convert(values, out, |value: f32| {
        let bits = value.to_bits();
        let magnitude = bits & !SIGN;
        let is_nan = magnitude > EXPONENT;
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        let half = if is_nan { bits >> 16 | 0x40 } else { rounded };
        // The error in units of the last place, since arithmetic with subnormal numbers takes a
        // hundred times as long.
        let steps = ((rounded & 0x7fff) << 16).wrapping_sub(magnitude) as i32 as f32;
        let mantissa = f32::from_bits(magnitude & !EXPONENT | LAST_PLACE);
        let first = if magnitude < 1 << MANTISSA { f32::from_bits(LAST_PLACE) } else { 0.0 };
        let outcome = Outcome {
            zero: magnitude == 0,
            changed: !is_nan & (bits & 0xffff != 0),
            overflowed: !is_nan & (rounded & 0x7fff == 0x7f80) & (magnitude != EXPONENT),
            zero_now: half & 0x7fff == 0,
            error: steps / (mantissa - first),
        };
        ((half as u16).to_le_bytes(), outcome)
    })
}

/// Rounds to `e8m0fnu`, the nearest power of two, ties upwards. The type has no sign and no zero:
/// as in torch, a sign is dropped, and numbers that are too small become the smallest.
pub(super) fn to_scale(values: &[f32], out: &mut [u8]) -> CastReport {
    // The smallest power, 2^-127, is subnormal in `f32`.
    const SMALLEST: u32 = 1 << (MANTISSA - 1);
    const FIRST_MIDDLE: u32 = SMALLEST + SMALLEST / 2;
    convert(values, out, |value: f32| {
        let magnitude = value.to_bits() & !SIGN;
        let normal = (magnitude + (1 << (MANTISSA - 1))) >> MANTISSA;
        let scale =
            if magnitude < 1 << MANTISSA { u32::from(magnitude > FIRST_MIDDLE) } else { normal };
        let scale = scale.min(0xff);
        let after = if scale == 0 { SMALLEST } else { scale << MANTISSA };
        // Arithmetic with a subnormal number takes a hundred times as long, so that both are
        // multiplied by 2^149.
        let scaled = |bits: u32| {
            if magnitude < 1 << MANTISSA { bits as i32 as f32 } else { f32::from_bits(bits) }
        };
        let (before, after) = (scaled(magnitude).copysign(value), scaled(after));
        let outcome = Outcome {
            zero: magnitude == 0,
            changed: (after != before) & !value.is_nan(),
            overflowed: (scale == 0xff) & !value.is_nan(),
            zero_now: false,
            error: (after - before) / before,
        };
        ([scale as u8], outcome)
    })
}

pub(super) fn to_bool(values: &[f32], out: &mut [u8]) -> CastReport {
    convert(values, out, |value: f32| {
        let outcome = Outcome {
            zero: value == 0.0,
            changed: (value != 0.0) & (value != 1.0),
            overflowed: !value.is_finite(),
            zero_now: value == 0.0,
            error: (1.0 - value) / value,
        };
        ([u8::from(value != 0.0)], outcome)
    })
}

pub(super) fn f64_to_f32(values: &[f64], out: &mut [u8]) -> CastReport {
    convert(values, out, |value: f64| {
        let single = value as f32;
        let after = f64::from(single);
        let outcome = Outcome {
            zero: value == 0.0,
            changed: (after != value) & !value.is_nan(),
            overflowed: single.is_infinite() & value.is_finite(),
            zero_now: single == 0.0,
            error: ((after - value) / value) as f32,
        };
        (single.to_le_bytes(), outcome)
    })
}

/// Truncates to an integer type. Numbers that are out of range become the nearest limit, NaN
/// becomes 0. `$parts` returns the integer, and its magnitude as a float.
macro_rules! truncate {
    ($values:expr, $out:expr, $float:ty as $wide:ty, $int:ty, $parts:ident) => {{
        const LOWEST: $wide = <$int>::MIN as $wide;
        // Rounds to LOWEST if not representable.
        const BELOW: $wide = LOWEST - 1.0;
        const ABOVE: $wide = (<$int>::MAX / 2 + 1) as $wide * 2.0;
        convert(
            $values,
            $out,
            #[inline(always)]
            |value: $float| {
                let value = <$wide>::from(value);
                let before = value.abs();
                let inside = ((value >= LOWEST) | (value > BELOW)) & (value < ABOVE);
                let (int, after) = $parts!(value, inside, $int);
                let zero_now = after == 0.0;
                let outcome = Outcome {
                    zero: value == 0.0,
                    changed: !inside | (after != before) | (zero_now & value.is_sign_negative()),
                    overflowed: !inside,
                    zero_now,
                    error: ((after - before) / if zero_now { 1.0 } else { before }) as f32,
                };
                (int.to_le_bytes(), outcome)
            },
        )
    }};
}

macro_rules! converted {
    ($value:ident, $inside:ident, $int:ty) => {{
        let int = $value as $int;
        (int, (int as f32).abs())
    }};
}

/// By arithmetic of floats: processors without AVX-512 convert doubles to most integer types, and
/// all floats to 64-bit integers, one by one.
macro_rules! computed {
    ($value:ident, $inside:ident, $int:ty) => {{
        let magnitude = $value.abs();
        let magnitude = if $inside & (magnitude >= 1.0) { magnitude } else { 0.0 };
        let is_wide = size_of::<$int>() > 4;
        let upper = if is_wide { truncated(magnitude * (1.0 / TWO_32)) } else { 0.0 };
        let lower = truncated(magnitude - upper * TWO_32);
        let size = low_bits(upper) << 32 | low_bits(lower);
        let signed = if $value < 0.0 { size.wrapping_neg() } else { size };
        let limit = if $value > 0.0 { <$int>::MAX as u64 } else { <$int>::MIN as u64 };
        let limit = if $value.is_nan() { 0 } else { limit };
        (if $inside { signed } else { limit } as $int, upper * TWO_32 + lower)
    }};
}

/// 2^32, and 2^52, from which on doubles are integers.
const TWO_32: f64 = 4_294_967_296.0;
const TWO_52: f64 = 4_503_599_627_370_496.0;

/// Rounds a number from 0 to 2^51 down.
#[inline(always)]
fn truncated(value: f64) -> f64 {
    let nearest = (value + TWO_52) - TWO_52;
    if nearest > value { nearest - 1.0 } else { nearest }
}

/// Converts an integer from 0 to 2^32 - 1.
#[inline(always)]
fn low_bits(value: f64) -> u64 {
    (value + TWO_52).to_bits() & 0xffff_ffff
}

macro_rules! float_to_int {
    ($name:ident, $float:ty, $parts:ident) => {
        pub(super) fn $name(values: &[$float], to: &DType, out: &mut [u8]) -> CastReport {
            match to {
                DType::U8 => truncate!(values, out, $float as $float, u8, $parts),
                DType::U16 => truncate!(values, out, $float as $float, u16, $parts),
                DType::U32 => truncate!(values, out, $float as $float, u32, $parts),
                DType::U64 => truncate!(values, out, $float as f64, u64, computed),
                DType::I8 => truncate!(values, out, $float as $float, i8, $parts),
                DType::I16 => truncate!(values, out, $float as $float, i16, $parts),
                DType::I32 => truncate!(values, out, $float as $float, i32, $parts),
                DType::I64 => truncate!(values, out, $float as f64, i64, computed),
                _ => CastReport::default(),
            }
        }
    };
}

float_to_int!(f32_to_int, f32, converted);
float_to_int!(f64_to_int, f64, computed);
