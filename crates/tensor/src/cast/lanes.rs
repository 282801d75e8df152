//! Reads elements into a buffer of one arithmetic type, and writes that buffer as another dtype.
//!
//! Values that the buffer can't hold are rounded to odd. Rounding once more, to fewer bits, then
//! gives the same result as rounding once (Boldo and Melquiond, "Emulation of FMA and correctly
//! rounded sums").

use statelens_checkpoint::DType;

use super::CastReport;
use super::float;
use super::int::{self, Split as _};
use super::outcome::widen;
use super::small::{Small, bits_of_int, decode_scale};
use crate::widest::widest;

/// The elements of one block.
#[derive(Debug)]
pub(super) enum Lanes {
    F32(Vec<f32>),
    F64(Vec<f64>),
    I64(Vec<i64>),
    U64(Vec<u64>),
}

impl Default for Lanes {
    fn default() -> Self {
        Self::F32(Vec::new())
    }
}

/// Returns whether elements are single numbers (or bools) that can be cast.
pub(super) fn is_number(dtype: &DType) -> bool {
    dtype.is_int() || *dtype == DType::Bool || dtype.is_float() && *dtype != DType::F4E2M1FNX2
}

/// Returns the torch dtype that holds all numbers of a dtype that torch lacks; `None` for all
/// others.
pub(super) fn plain(dtype: &DType) -> Option<DType> {
    let DType::Numpy(_) = dtype else { return None };
    match bits_of_int(dtype) {
        Some(_) => Some(DType::I8),
        None => Small::of(dtype).map(|_| DType::F16),
    }
}

/// The precision that the buffer must preserve for a target.
#[derive(Clone, Copy, PartialEq)]
enum Target {
    /// A float of at most 16 bits, or a bool.
    Small,
    Single,
    Double,
    Int,
}

impl Target {
    fn of(dtype: &DType) -> Self {
        match dtype {
            DType::F32 => Self::Single,
            DType::F64 => Self::Double,
            dtype if dtype.is_int() => Self::Int,
            _ => Self::Small,
        }
    }
}

impl Lanes {
    /// Reads elements of `from`, which [`is_number`] or [`plain`] accepts, to be written as `to`.
    pub(super) fn read(&mut self, from: &DType, to: &DType, stored: &[u8]) {
        let has_exponents_of_f32 = matches!(to, DType::BF16 | DType::F8E8M0FNU);
        let to = Target::of(to);
        match from {
            DType::F32 => self.f32s(stored, f32::from_le_bytes),
            DType::F64 if to == Target::Small && has_exponents_of_f32 => {
                self.f32s(stored, |bytes| odd_f32(f64::from_le_bytes(bytes)));
            }
            DType::F64 if to == Target::Small => {
                self.f32s(stored, |bytes| odd_f32(without_tiny(f64::from_le_bytes(bytes))));
            }
            DType::F64 => self.f64s(stored, f64::from_le_bytes),
            DType::BF16 => self
                .f32s(stored, |bytes| f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)),
            DType::F16 => self.f32s(stored, |bytes| widen_f16(u16::from_le_bytes(bytes))),
            DType::F8E8M0FNU => self.f32s(stored, |[byte]| decode_scale(byte)),
            DType::Bool => self.short_ints(to, stored, |[byte]| i32::from(byte != 0)),
            DType::U8 => self.short_ints(to, stored, |bytes| u8::from_le_bytes(bytes).into()),
            DType::I8 => self.short_ints(to, stored, |bytes| i8::from_le_bytes(bytes).into()),
            DType::I16 => self.short_ints(to, stored, |bytes| i16::from_le_bytes(bytes).into()),
            DType::U16 => self.short_ints(to, stored, |bytes| u16::from_le_bytes(bytes).into()),
            DType::U32 => self.ints(to, stored, |bytes| u32::from_le_bytes(bytes).into()),
            DType::I32 => self.ints(to, stored, |bytes| i32::from_le_bytes(bytes).into()),
            DType::I64 => self.ints(to, stored, i64::from_le_bytes),
            DType::U64 => match to {
                Target::Small => {
                    self.f32s(stored, |bytes| odd_f32(u64::from_le_bytes(bytes).halves().odd()))
                }
                Target::Single => {
                    self.f64s(stored, |bytes| u64::from_le_bytes(bytes).halves().odd())
                }
                Target::Double | Target::Int => self.u64s(stored),
            },
            from => match (bits_of_int(from), Small::of(from)) {
                (Some(bits), _) => self.short_ints(to, stored, |[byte]| {
                    i32::from((byte << (8 - bits)) as i8 >> (8 - bits))
                }),
                (None, Some(small)) => {
                    let table: [f32; 256] =
                        std::array::from_fn(|bits| small.decode(bits as u16) as f32);
                    self.f32s(stored, |[byte]| table[usize::from(byte)]);
                }
                // Never a source dtype: see `is_number` and `plain`.
                (None, None) => *self = Self::default(),
            },
        }
    }

    /// Writes the elements as a dtype that [`is_number`] accepts; returns what changed.
    pub(super) fn write(&self, to: &DType, out: &mut [u8]) -> CastReport {
        match self {
            Self::F32(values) => match to {
                DType::F64 => widen(values, out, |value| f64::from(value).to_le_bytes()),
                DType::F32 => widen(values, out, f32::to_le_bytes),
                DType::BF16 => float::to_bf16(values, out),
                DType::F8E8M0FNU => float::to_scale(values, out),
                DType::Bool => float::to_bool(values, out),
                to if to.is_int() => float::f32_to_int(values, to, out),
                to => match Small::of(to) {
                    Some(small) if to.itemsize() == 2 => {
                        float::to_small(values, &small, out, u16::to_le_bytes)
                    }
                    Some(small) => float::to_small(values, &small, out, |bits| [bits as u8]),
                    None => CastReport::default(),
                },
            },
            Self::F64(values) => match to {
                DType::F64 => widen(values, out, f64::to_le_bytes),
                DType::F32 => float::f64_to_f32(values, out),
                to => float::f64_to_int(values, to, out),
            },
            Self::I64(values) => int::write_i64(values, to, out),
            Self::U64(values) => int::write_u64(values, to, out),
        }
    }

    /// Reads integers that are exact in `f32`.
    fn short_ints<const N: usize>(
        &mut self,
        to: Target,
        stored: &[u8],
        read: impl Fn([u8; N]) -> i32,
    ) {
        match to {
            Target::Int => self.i64s(stored, |bytes| read(bytes).into()),
            _ => self.f32s(stored, |bytes| read(bytes) as f32),
        }
    }

    fn ints<const N: usize>(&mut self, to: Target, stored: &[u8], read: impl Fn([u8; N]) -> i64) {
        match to {
            Target::Small => self.f32s(stored, |bytes| odd_f32(read(bytes).halves().odd())),
            Target::Single => self.f64s(stored, |bytes| read(bytes).halves().odd()),
            // The conversion is exact, so no losses need to be counted.
            Target::Double if N < 8 => self.f64s(stored, |bytes| read(bytes) as f64),
            Target::Double | Target::Int => self.i64s(stored, read),
        }
    }

    fn f32s<const N: usize>(&mut self, stored: &[u8], read: impl Fn([u8; N]) -> f32) {
        let mut values =
            if let Self::F32(values) = self { std::mem::take(values) } else { Vec::new() };
        fill(&mut values, stored, read);
        *self = Self::F32(values);
    }

    fn f64s<const N: usize>(&mut self, stored: &[u8], read: impl Fn([u8; N]) -> f64) {
        let mut values =
            if let Self::F64(values) = self { std::mem::take(values) } else { Vec::new() };
        fill(&mut values, stored, read);
        *self = Self::F64(values);
    }

    fn i64s<const N: usize>(&mut self, stored: &[u8], read: impl Fn([u8; N]) -> i64) {
        let mut values =
            if let Self::I64(values) = self { std::mem::take(values) } else { Vec::new() };
        fill(&mut values, stored, read);
        *self = Self::I64(values);
    }

    fn u64s(&mut self, stored: &[u8]) {
        let mut values =
            if let Self::U64(values) = self { std::mem::take(values) } else { Vec::new() };
        fill(&mut values, stored, u64::from_le_bytes);
        *self = Self::U64(values);
    }
}

#[inline(always)]
fn fill<T: Copy + Default, const N: usize>(
    values: &mut Vec<T>,
    stored: &[u8],
    read: impl Fn([u8; N]) -> T,
) {
    let stored = stored.as_chunks().0;
    values.resize(stored.len(), T::default());
    widest(
        #[inline(always)]
        || values.iter_mut().zip(stored).for_each(|(value, bytes)| *value = read(*bytes)),
    );
}

/// Widens a 16-bit float without branches; a NaN keeps its payload and becomes quiet.
#[inline(always)]
pub fn widen_f16(half: u16) -> f32 {
    const INFINITY: u32 = 0x7f80_0000;
    const EXPONENT: u32 = 0x7c00 << 13;
    const TINY: u32 = (127 - 14) << 23;
    let half = u32::from(half);
    let shifted = (half & 0x7fff) << 13;
    let exponent = shifted & EXPONENT;
    let normal = shifted + ((127 - 15) << 23);
    // Infinities and NaNs: the exponent is all ones in both formats.
    let quiet = if shifted > EXPONENT { 0x40_0000 } else { 0 };
    let special = shifted | INFINITY | quiet;
    // Subnormals: adds the implicit one, then subtracts it.
    let subnormal = (f32::from_bits(shifted + TINY) - f32::from_bits(TINY)).to_bits();
    let bits = if exponent == 0 { subnormal } else { normal };
    let bits = if exponent == EXPONENT { special } else { bits };
    f32::from_bits(bits | (half & 0x8000) << 16)
}

/// Replaces nonzero numbers that every small float rounds to zero: as subnormal `f32` they would
/// take a hundred times as long.
#[inline(always)]
fn without_tiny(value: f64) -> f64 {
    // 2^-100
    const TINY: f64 = f64::from_bits((1023 - 100) << 52);
    let tiny = (value.abs() < TINY) & (value != 0.0);
    if tiny { TINY.copysign(value) } else { value }
}

/// Rounds to `f32`, to odd; numbers that are too large become the largest finite number.
#[inline(always)]
fn odd_f32(value: f64) -> f32 {
    let nearest = value as f32;
    let back = f64::from(nearest);
    let too_large = back.abs() > value.abs();
    let inexact = too_large | (back.abs() < value.abs());
    let truncated = nearest.to_bits() - u32::from(too_large);
    f32::from_bits(truncated | u32::from(inexact))
}
