//! How the elements of each dtype are decoded.

use half::bf16;
use statelens_checkpoint::DType;
use statelens_tensor::{Cast, decode_f4, plain, widen_f16};

/// The kinds of elements, by how their values are counted.
#[derive(Debug, Clone, PartialEq)]
pub enum ElementKind {
    /// One byte; counted by code.
    Bytes(Box<Codes>),
    /// Two bytes; counted by code.
    Halves(Half),
    /// float32.
    F32,
    /// float64.
    F64,
    /// Integers of 4 or 8 bytes.
    Ints(Int),
    /// Complex numbers of two such components; their moduli are counted.
    Complex(Component),
}

/// The values of the codes of one byte.
#[derive(Debug, Clone, PartialEq)]
pub struct Codes {
    pub(crate) values: [f64; 256],
    /// The second values, if a byte holds two.
    pub(crate) seconds: Option<[f64; 256]>,
    /// The smallest normal magnitude; 0 if the dtype has no subnormal numbers.
    pub(crate) normal: f64,
}

/// Numeric types of two bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// float16.
    F16,
    /// bfloat16.
    BF16,
    /// int16.
    I16,
    /// uint16.
    U16,
}

/// Integers of 4 or 8 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Int {
    /// int32.
    I32,
    /// uint32.
    U32,
    /// int64.
    I64,
    /// uint64.
    U64,
}

/// The type of the two components of a complex number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    /// float16.
    F16,
    /// bfloat16.
    BF16,
    /// float32.
    F32,
    /// float64.
    F64,
}

impl ElementKind {
    /// Returns the kind of a dtype; `None` if it is not numeric: bits, strings, records, quantised
    /// blocks.
    pub fn of(dtype: &DType) -> Option<Self> {
        Some(match dtype {
            DType::F32 => Self::F32,
            DType::F64 => Self::F64,
            DType::F16 => Self::Halves(Half::F16),
            DType::BF16 => Self::Halves(Half::BF16),
            DType::I16 => Self::Halves(Half::I16),
            DType::U16 => Self::Halves(Half::U16),
            DType::I32 | DType::QInt32 => Self::Ints(Int::I32),
            DType::U32 => Self::Ints(Int::U32),
            DType::I64 => Self::Ints(Int::I64),
            DType::U64 => Self::Ints(Int::U64),
            DType::C32 => Self::Complex(Component::F16),
            DType::BC32 => Self::Complex(Component::BF16),
            DType::C64 => Self::Complex(Component::F32),
            DType::C128 => Self::Complex(Component::F64),
            dtype => Self::Bytes(Box::new(Codes::of(dtype)?)),
        })
    }

    /// Returns the size of an element in bytes.
    pub fn size(&self) -> usize {
        match self {
            Self::Bytes(_) => 1,
            Self::Halves(_) => 2,
            Self::F32
            | Self::Ints(Int::I32 | Int::U32)
            | Self::Complex(Component::F16 | Component::BF16) => 4,
            Self::F64 | Self::Ints(_) | Self::Complex(Component::F32) => 8,
            Self::Complex(Component::F64) => 16,
        }
    }

    /// Returns the number of values in an element.
    pub fn values(&self) -> u64 {
        match self {
            Self::Bytes(codes) if codes.seconds.is_some() => 2,
            _ => 1,
        }
    }

    /// Returns the finite values of complete elements as the nearest doubles.
    pub fn doubles(&self, elements: &[u8]) -> Vec<f64> {
        let mut values = self.all(elements);
        values.retain(|value| value.is_finite());
        values
    }

    /// Returns all values of complete elements as the nearest doubles.
    pub fn all(&self, elements: &[u8]) -> Vec<f64> {
        match self {
            Self::Bytes(codes) => {
                let values = elements.iter().map(|byte| {
                    let seconds = codes.seconds.as_ref().map(|seconds| seconds[usize::from(*byte)]);
                    [Some(codes.values[usize::from(*byte)]), seconds]
                });
                values.flatten().flatten().collect()
            }
            Self::Halves(half) => each(elements, |bytes| half.value(u16::from_le_bytes(bytes))),
            Self::F32 => each(elements, |bytes| f32::from_le_bytes(bytes).into()),
            Self::F64 => each(elements, f64::from_le_bytes),
            Self::Ints(Int::I32) => each(elements, |bytes| i32::from_le_bytes(bytes).into()),
            Self::Ints(Int::U32) => each(elements, |bytes| u32::from_le_bytes(bytes).into()),
            Self::Ints(Int::I64) => each(elements, |bytes| i64::from_le_bytes(bytes) as f64),
            Self::Ints(Int::U64) => each(elements, |bytes| u64::from_le_bytes(bytes) as f64),
            Self::Complex(part) => {
                elements.chunks_exact(self.size()).map(|bytes| part.modulus(bytes)).collect()
            }
        }
    }
}

fn each<const N: usize>(elements: &[u8], value: impl Fn([u8; N]) -> f64) -> Vec<f64> {
    elements.as_chunks().0.iter().map(|bytes| value(*bytes)).collect()
}

impl Codes {
    fn of(dtype: &DType) -> Option<Self> {
        let mut values = [0f64; 256];
        let mut codes = (0..=255u8).zip(&mut values);
        match dtype {
            DType::Bool => codes.for_each(|(code, value)| *value = f64::from(u8::from(code != 0))),
            DType::U8 | DType::QUInt8 | DType::QUInt4x2 | DType::QUInt2x4 => {
                codes.for_each(|(code, value)| *value = code.into());
            }
            DType::I8 | DType::QInt8 => {
                codes.for_each(|(code, value)| *value = (code as i8).into())
            }
            DType::F4E2M1FNX2 => {
                // torch keeps the first of the two values in the low bits.
                codes.for_each(|(code, value)| *value = decode_f4(code));
                let mut seconds = [0f64; 256];
                (0..=255u8)
                    .zip(&mut seconds)
                    .for_each(|(code, value)| *value = decode_f4(code >> 4));
                return Some(Self { values, seconds: Some(seconds), normal: 1.0 });
            }
            dtype if dtype.itemsize() == 1 && (dtype.is_float() || plain(dtype).is_some()) => {
                let mut cast = Cast::new(dtype, &DType::F64).ok()?;
                let all: Vec<u8> = (0..=255).collect();
                let mut doubles = Vec::new();
                cast.run(&all, &mut doubles);
                let doubles = doubles.as_chunks().0;
                codes.by_ref().zip(doubles).for_each(|((_, value), bytes)| {
                    *value = f64::from_le_bytes(*bytes);
                });
            }
            _ => return None,
        }
        // The code after those with an exponent of zero.
        let normal = mantissa(dtype).map_or(0.0, |bits| values[1 << bits]);
        Some(Self { values, seconds: None, normal })
    }
}

/// Returns the number of mantissa bits of a one-byte float that has subnormal numbers.
fn mantissa(dtype: &DType) -> Option<u32> {
    match dtype {
        DType::F8E4M3FN | DType::F8E4M3FNUZ => Some(3),
        DType::F8E5M2 | DType::F8E5M2FNUZ => Some(2),
        DType::Numpy(numpy) => match numpy.name.as_str() {
            "float8_e3m4" => Some(4),
            "float8_e4m3" | "float8_e4m3b11fnuz" | "float6_e2m3fn" => Some(3),
            "float6_e3m2fn" => Some(2),
            "float4_e2m1fn" => Some(1),
            _ => None,
        },
        _ => None,
    }
}

impl Half {
    /// Returns the value of a code; exact.
    pub(crate) fn value(self, code: u16) -> f64 {
        match self {
            Self::F16 => widen_f16(code).into(),
            Self::BF16 => bf16::from_bits(code).to_f64(),
            Self::I16 => (code as i16).into(),
            Self::U16 => code.into(),
        }
    }

    /// Returns the smallest normal magnitude; 0 if the type has no subnormal numbers.
    pub(crate) fn normal(self) -> f64 {
        match self {
            Self::F16 => widen_f16(0x0400).into(),
            Self::BF16 => bf16::MIN_POSITIVE.to_f64(),
            Self::I16 | Self::U16 => 0.0,
        }
    }
}

impl Component {
    /// Returns the modulus of a number: NaN if either component is NaN, else infinite if either is
    /// infinite.
    pub(crate) fn modulus(self, bytes: &[u8]) -> f64 {
        let (one, other) = bytes.split_at(bytes.len() / 2);
        let (one, other) = (self.value(one), self.value(other));
        match self {
            _ if one.is_nan() || other.is_nan() => f64::NAN,
            Self::F64 => one.hypot(other),
            // Squares of the smaller floats are exact as doubles, and their sum is rounded once.
            _ => (one * one + other * other).sqrt(),
        }
    }

    /// Returns the smallest normal magnitude.
    pub(crate) fn normal(self) -> f64 {
        match self {
            Self::F16 => Half::F16.normal(),
            Self::BF16 => Half::BF16.normal(),
            Self::F32 => f32::MIN_POSITIVE.into(),
            Self::F64 => f64::MIN_POSITIVE,
        }
    }

    fn value(self, bytes: &[u8]) -> f64 {
        match self {
            Self::F16 => bytes.first_chunk().map(|it| widen_f16(u16::from_le_bytes(*it)).into()),
            Self::BF16 => bytes.first_chunk().map(|it| bf16::from_le_bytes(*it).to_f64()),
            Self::F32 => bytes.first_chunk().map(|it| f32::from_le_bytes(*it).into()),
            Self::F64 => bytes.first_chunk().map(|it| f64::from_le_bytes(*it)),
        }
        .unwrap_or(f64::NAN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn non_numeric_dtypes_have_no_kind() {
        assert_eq!(ElementKind::of(&DType::Bits8), None);
        assert_eq!(ElementKind::of(&DType::from_numpy_code("U3").unwrap()), None);
        assert_eq!(ElementKind::of(&DType::from_numpy_code("f16").unwrap()), None);
        assert!(ElementKind::of(&DType::from_ml_dtypes_name("int4").unwrap()).is_some());
    }

    #[test]
    fn decodes_8_bit_and_4_bit_codes() {
        let Some(ElementKind::Bytes(codes)) = ElementKind::of(&DType::F8E4M3FN) else { panic!() };
        assert_eq!((codes.values[0x38], codes.values[0xfe], codes.normal), (1.0, -448.0, 0.015625));
        let Some(ElementKind::Bytes(codes)) = ElementKind::of(&DType::F8E8M0FNU) else { panic!() };
        assert_eq!((codes.values[127], codes.values[0], codes.normal), (1.0, 2f64.powi(-127), 0.0));
        let Some(ElementKind::Bytes(codes)) = ElementKind::of(&DType::F4E2M1FNX2) else { panic!() };
        assert_eq!((codes.values[0xf2], codes.seconds.unwrap()[0xf2]), (1.0, -6.0));
    }
}
