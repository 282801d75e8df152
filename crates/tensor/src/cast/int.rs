//! Casts of integers. To other integers they wrap around, as in torch.

use statelens_checkpoint::DType;

use super::CastReport;
use super::outcome::{Outcome, convert};

macro_rules! write_ints {
    ($name:ident, $int:ty) => {
        /// Writes integers as integers or 64-bit floats.
        pub(super) fn $name(values: &[$int], to: &DType, out: &mut [u8]) -> CastReport {
            match to {
                DType::U8 => wrap(values, out, |value| {
                    ((value as u8).to_le_bytes(), u8::try_from(value).is_ok())
                }),
                DType::U16 => wrap(values, out, |value| {
                    ((value as u16).to_le_bytes(), u16::try_from(value).is_ok())
                }),
                DType::U32 => wrap(values, out, |value| {
                    ((value as u32).to_le_bytes(), u32::try_from(value).is_ok())
                }),
                DType::U64 => wrap(values, out, |value| {
                    ((value as u64).to_le_bytes(), u64::try_from(value).is_ok())
                }),
                DType::I8 => wrap(values, out, |value| {
                    ((value as i8).to_le_bytes(), i8::try_from(value).is_ok())
                }),
                DType::I16 => wrap(values, out, |value| {
                    ((value as i16).to_le_bytes(), i16::try_from(value).is_ok())
                }),
                DType::I32 => wrap(values, out, |value| {
                    ((value as i32).to_le_bytes(), i32::try_from(value).is_ok())
                }),
                DType::I64 => wrap(values, out, |value| {
                    ((value as i64).to_le_bytes(), i64::try_from(value).is_ok())
                }),
                DType::F64 => convert(values, out, |value: $int| {
                    let double = value as f64;
                    // The conversion back saturates if the double is one more than the largest
                    // integer.
                    let above = double >= (<$int>::MAX / 2 + 1) as f64 * 2.0;
                    let back = double as $int;
                    let outcome = Outcome {
                        zero: value == 0,
                        changed: above | (back != value),
                        overflowed: false,
                        zero_now: false,
                        error: back.abs_diff(value).saturating_add(u64::from(above)) as f32
                            / double as f32,
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
