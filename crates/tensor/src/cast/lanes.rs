//! Casts that go through the widest number: 64-bit floats, or integers that hold all others.

use statelens_checkpoint::DType;

use super::CastReport;
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
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Same,
    /// So far off, relative to what it was.
    Rounded(f64),
    /// It is zero now and was not.
    Flushed,
    Overflowed,
}

/// A number of a lane.
trait Number: Copy {
    fn is_zero(self) -> bool;
}

impl Number for f64 {
    fn is_zero(self) -> bool {
        self == 0.0
    }
}

impl Number for i128 {
    fn is_zero(self) -> bool {
        self == 0
    }
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

    /// Gives the elements as another dtype for which [`is_number`] holds; returns what that did
    /// to them.
    pub(super) fn write(&self, dtype: &DType, out: &mut [u8]) -> CastReport {
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

fn each<T: Number, const N: usize>(
    values: &[T],
    out: &mut [u8],
    cast: impl Fn(T) -> ([u8; N], Fate),
) -> CastReport {
    let mut report = CastReport::default();
    for (value, out) in values.iter().zip(out.as_chunks_mut().0) {
        let (bytes, fate) = cast(*value);
        *out = bytes;
        report.nonzero += u64::from(!value.is_zero());
        report.changed += u64::from(fate != Fate::Same);
        match fate {
            Fate::Same => {}
            Fate::Rounded(error) => report.worst = report.worst.max(error),
            Fate::Flushed => report.flushed += 1,
            Fate::Overflowed => report.overflowed += 1,
        }
    }
    report
}

fn write_floats(values: &[f64], dtype: &DType, out: &mut [u8]) -> CastReport {
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
            let bit = u8::from(value != 0.0);
            ([bit], if exact { Fate::Same } else { fate(value, bit.into()) })
        }),
        dtype => match Small::of(dtype) {
            Some(small) if dtype.itemsize() == 2 => each(values, out, |value| {
                let bits = small.encode(value);
                (bits.to_le_bytes(), fate(value, small.decode(bits)))
            }),
            Some(small) => {
                let limit = small.saturates_above();
                each(values, out, |value| byte(small, limit, value))
            }
            None => to_ints(
                values,
                dtype,
                out,
                |value| {
                    // Towards zero; NaN is 0, and what is too large the largest, for now.
                    let int = value as i128;
                    let exact = int as f64 == value && (int != 0 || value.is_sign_positive());
                    (int, if exact { Fate::Same } else { fate(value, int as f64) })
                },
                true,
            ),
        },
    }
}

fn write_ints(values: &[i128], dtype: &DType, out: &mut [u8]) -> CastReport {
    match dtype {
        DType::F64 => each(values, out, |value| {
            let double = value as f64;
            (double.to_le_bytes(), fate_of_int(value, double))
        }),
        DType::F32 => each(values, out, |value| {
            let single = value as f32;
            (single.to_le_bytes(), fate_of_int(value, single.into()))
        }),
        DType::F8E8M0FNU => each(values, out, |value| {
            let bits = encode_scale(odd(value));
            ([bits], fate(odd(value), decode_scale(bits)))
        }),
        DType::Bool => each(values, out, |value| {
            let bit = u8::from(value != 0);
            ([bit], fate_of_int(value, bit.into()))
        }),
        dtype => match Small::of(dtype) {
            Some(small) if dtype.itemsize() == 2 => each(values, out, |value| {
                let bits = small.encode(odd(value));
                (bits.to_le_bytes(), fate_of_int(value, small.decode(bits)))
            }),
            Some(small) => {
                let limit = small.saturates_above();
                each(values, out, |value| byte(small, limit, odd(value)))
            }
            None => to_ints(values, dtype, out, |value| (value, Fate::Same), false),
        },
    }
}

/// A number as a float of one byte that becomes the largest from `limit` on.
fn byte(small: Small, limit: f64, value: f64) -> ([u8; 1], Fate) {
    let bits = small.encode(value);
    let fate = match value.abs() > limit {
        true => Fate::Overflowed,
        false => fate(value, small.decode(bits)),
    };
    ([bits as u8], fate)
}

/// To integers: out of range, floats take the nearest end, and integers wrap round, as in torch.
fn to_ints<T: Number>(
    values: &[T],
    dtype: &DType,
    out: &mut [u8],
    int: impl Fn(T) -> (i128, Fate),
    saturate: bool,
) -> CastReport {
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
    } else if after == 0.0 && before != 0.0 {
        Fate::Flushed
    } else {
        // A zero that lost its sign, or that a dtype without one has as its smallest number.
        Fate::Rounded(if before == 0.0 { 0.0 } else { ((after - before) / before).abs() })
    }
}

fn fate_of_int(before: i128, after: f64) -> Fate {
    match after.is_finite() {
        false => Fate::Overflowed,
        true if after as i128 == before => Fate::Same,
        // What a double can't hold of the integer is far less than what was rounded off.
        true => Fate::Rounded(((after as i128 - before) as f64 / before as f64).abs()),
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
