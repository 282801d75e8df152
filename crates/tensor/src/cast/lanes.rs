//! Casts that go through the widest number: 64-bit floats, or integers that hold all others.

use statelens_checkpoint::DType;

use super::small::{Small, bits_of_int, decode_scale, encode_scale};

/// A block of numbers between two dtypes.
#[derive(Debug)]
pub(super) enum Lanes {
    Floats(Vec<f64>),
    Ints(Vec<i128>),
}

impl Default for Lanes {
    fn default() -> Self {
        Self::Floats(Vec::new())
    }
}

/// What became of one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Same,
    Changed,
    Overflowed,
}

/// Whether elements are single numbers (or bools) that can be cast.
pub(super) fn is_number(dtype: &DType) -> bool {
    dtype.is_int() || *dtype == DType::Bool || dtype.is_float() && *dtype != DType::F4E2M1FNX2
}

/// The dtype of torch that holds all numbers of one that torch lacks; `None` for all others.
pub(super) fn plain(dtype: &DType) -> Option<DType> {
    let DType::Numpy(_) = dtype else { return None };
    match bits_of_int(dtype) {
        Some(_) => Some(DType::I8),
        None => Small::of(dtype).map(|_| DType::F16),
    }
}

impl Lanes {
    /// Takes the elements of a dtype for which [`is_number`] or [`plain`] holds.
    pub(super) fn read(&mut self, dtype: &DType, stored: &[u8]) {
        *self = match dtype {
            DType::Bool => ints(stored, |[byte]| i128::from(byte != 0)),
            DType::U8 => ints(stored, |bytes| u8::from_le_bytes(bytes).into()),
            DType::U16 => ints(stored, |bytes| u16::from_le_bytes(bytes).into()),
            DType::U32 => ints(stored, |bytes| u32::from_le_bytes(bytes).into()),
            DType::U64 => ints(stored, |bytes| u64::from_le_bytes(bytes).into()),
            DType::I8 => ints(stored, |bytes| i8::from_le_bytes(bytes).into()),
            DType::I16 => ints(stored, |bytes| i16::from_le_bytes(bytes).into()),
            DType::I32 => ints(stored, |bytes| i32::from_le_bytes(bytes).into()),
            DType::I64 => ints(stored, |bytes| i64::from_le_bytes(bytes).into()),
            DType::F32 => floats(stored, |bytes| f32::from_le_bytes(bytes).into()),
            DType::F64 => floats(stored, f64::from_le_bytes),
            DType::F8E8M0FNU => floats(stored, |[byte]| decode_scale(byte)),
            dtype if bits_of_int(dtype).is_some() => {
                let shift = 8 - bits_of_int(dtype).unwrap_or(8);
                ints(stored, |[byte]| i128::from((byte << shift) as i8 >> shift))
            }
            dtype => match Small::of(dtype) {
                Some(small) if dtype.itemsize() == 2 => {
                    floats(stored, |bytes| small.decode(u16::from_le_bytes(bytes)))
                }
                Some(small) => {
                    let table: Vec<f64> = (0..256).map(|bits| small.decode(bits)).collect();
                    floats(stored, |[byte]| table[usize::from(byte)])
                }
                None => Self::default(),
            },
        }
    }

    /// Gives the elements as another dtype for which [`is_number`] holds; returns how many are
    /// changed, and overflowed.
    pub(super) fn write(&self, dtype: &DType, out: &mut [u8]) -> (u64, u64) {
        match self {
            Self::Floats(values) => write_floats(values, dtype, out),
            Self::Ints(values) => write_ints(values, dtype, out),
        }
    }
}

fn ints<const N: usize>(stored: &[u8], read: impl Fn([u8; N]) -> i128) -> Lanes {
    Lanes::Ints(stored.as_chunks().0.iter().map(|bytes| read(*bytes)).collect())
}

fn floats<const N: usize>(stored: &[u8], read: impl Fn([u8; N]) -> f64) -> Lanes {
    Lanes::Floats(stored.as_chunks().0.iter().map(|bytes| read(*bytes)).collect())
}

fn each<T: Copy, const N: usize>(
    values: &[T],
    out: &mut [u8],
    cast: impl Fn(T) -> ([u8; N], Fate),
) -> (u64, u64) {
    let (mut changed, mut overflowed) = (0, 0);
    for (value, out) in values.iter().zip(out.as_chunks_mut().0) {
        let (bytes, fate) = cast(*value);
        *out = bytes;
        changed += u64::from(fate != Fate::Same);
        overflowed += u64::from(fate == Fate::Overflowed);
    }
    (changed, overflowed)
}

fn write_floats(values: &[f64], dtype: &DType, out: &mut [u8]) -> (u64, u64) {
    match dtype {
        DType::F64 => each(values, out, |value| (value.to_le_bytes(), Fate::Same)),
        DType::F32 => each(values, out, |value| {
            let single = value as f32;
            (single.to_le_bytes(), fate(value, single.into()))
        }),
        DType::F8E8M0FNU => each(values, out, |value| {
            let bits = encode_scale(value);
            ([bits], fate(value, decode_scale(bits)))
        }),
        DType::Bool => each(values, out, |value| {
            let exact = value == 0.0 || value == 1.0;
            ([u8::from(value != 0.0)], if exact { Fate::Same } else { Fate::Changed })
        }),
        dtype => match Small::of(dtype) {
            Some(small) if dtype.itemsize() == 2 => each(values, out, |value| {
                let bits = small.encode(value);
                (bits.to_le_bytes(), fate(value, small.decode(bits)))
            }),
            Some(small) => {
                let limit = small.saturates_above();
                each(values, out, |value| {
                    let bits = small.encode(value);
                    let fate = match value.abs() > limit {
                        true => Fate::Overflowed,
                        false => fate(value, small.decode(bits)),
                    };
                    ([bits as u8], fate)
                })
            }
            None => to_ints(
                values,
                dtype,
                out,
                |value| {
                    // Towards zero; NaN is 0, and what is too large the largest, for now.
                    let int = value as i128;
                    let fate = match (int as f64 == value, value.is_finite()) {
                        (true, true) if value != 0.0 || value.is_sign_positive() => Fate::Same,
                        (_, true) => Fate::Changed,
                        (_, false) => Fate::Overflowed,
                    };
                    (int, fate)
                },
                true,
            ),
        },
    }
}

fn write_ints(values: &[i128], dtype: &DType, out: &mut [u8]) -> (u64, u64) {
    let exact = |same| if same { Fate::Same } else { Fate::Changed };
    match dtype {
        DType::F64 => each(values, out, |value| {
            let double = value as f64;
            (double.to_le_bytes(), exact(double as i128 == value))
        }),
        DType::F32 => each(values, out, |value| {
            let single = value as f32;
            (single.to_le_bytes(), exact(single as i128 == value))
        }),
        DType::F8E8M0FNU => each(values, out, |value| {
            let bits = encode_scale(odd(value));
            ([bits], fate(odd(value), decode_scale(bits)))
        }),
        DType::Bool => {
            each(values, out, |value| ([u8::from(value != 0)], exact(value == 0 || value == 1)))
        }
        dtype => match Small::of(dtype) {
            Some(small) if dtype.itemsize() == 2 => each(values, out, |value| {
                let bits = small.encode(odd(value));
                (bits.to_le_bytes(), fate(odd(value), small.decode(bits)))
            }),
            Some(small) => each(values, out, |value| {
                let bits = small.encode(odd(value));
                ([bits as u8], fate(odd(value), small.decode(bits)))
            }),
            None => to_ints(values, dtype, out, |value| (value, Fate::Same), false),
        },
    }
}

/// To integers: out of range, floats take the nearest end, and integers wrap round, as in torch.
fn to_ints<T: Copy>(
    values: &[T],
    dtype: &DType,
    out: &mut [u8],
    int: impl Fn(T) -> (i128, Fate),
    saturate: bool,
) -> (u64, u64) {
    fn fit<const N: usize>(
        (value, fate): (i128, Fate),
        (low, high): (i128, i128),
        saturate: bool,
    ) -> ([u8; N], Fate) {
        let inside = (low..=high).contains(&value);
        let value = if saturate { value.clamp(low, high) } else { value };
        let mut bytes = [0; N];
        bytes.copy_from_slice(&value.to_le_bytes()[..N]);
        (bytes, if inside { fate } else { Fate::Overflowed })
    }
    let bits = dtype.itemsize() as u32 * 8;
    let unsigned = matches!(dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64);
    let span = if unsigned {
        (0, (1i128 << bits) - 1)
    } else {
        (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
    };
    match bits {
        8 => each::<_, 1>(values, out, |value| fit(int(value), span, saturate)),
        16 => each::<_, 2>(values, out, |value| fit(int(value), span, saturate)),
        32 => each::<_, 4>(values, out, |value| fit(int(value), span, saturate)),
        _ => each::<_, 8>(values, out, |value| fit(int(value), span, saturate)),
    }
}

fn fate(before: f64, after: f64) -> Fate {
    if before.to_bits() == after.to_bits() || before.is_nan() && after.is_nan() {
        Fate::Same
    } else if before.is_finite() != after.is_finite() || before.is_nan() != after.is_nan() {
        Fate::Overflowed
    } else {
        Fate::Changed
    }
}

/// An integer as a double, rounded to odd where it does not fit: a second rounding to fewer
/// bits then gives what a single one would have given.
fn odd(value: i128) -> f64 {
    let magnitude = value.unsigned_abs();
    let drop = (128 - magnitude.leading_zeros()).saturating_sub(53);
    let lost = magnitude & ((1 << drop) - 1) != 0;
    let kept = (magnitude >> drop | u128::from(lost)) as f64;
    let double = kept * (1u128 << drop) as f64;
    if value < 0 { -double } else { double }
}
