//! Formats one element of a tensor.

use statelens_checkpoint::{DType, Field, FileSet, Layout, NumpyType, Tensor, float_repr, visible};
use statelens_tensor::{decode_f4, elements};

use crate::dates;

/// Formats one element, given as logical bytes (little-endian), as Python would print it: floats
/// with the shortest digits that give the same element again, bits and bytes in hexadecimal, numpy
/// strings in quotes, records in parentheses. Returns an empty string if there are too few bytes.
pub fn element_text(dtype: &DType, bytes: &[u8]) -> String {
    text(dtype, bytes).unwrap_or_default()
}

fn text(dtype: &DType, bytes: &[u8]) -> Option<String> {
    use DType::*;
    Some(match dtype {
        Bool => if *bytes.first()? == 0 { "False" } else { "True" }.into(),
        U8 | QUInt8 | QUInt4x2 | QUInt2x4 => bytes.first()?.to_string(),
        U16 => u16::from_le_bytes(take(bytes)?).to_string(),
        U32 => u32::from_le_bytes(take(bytes)?).to_string(),
        U64 => u64::from_le_bytes(take(bytes)?).to_string(),
        I8 | QInt8 => i8::from_le_bytes(take(bytes)?).to_string(),
        I16 => i16::from_le_bytes(take(bytes)?).to_string(),
        I32 | QInt32 => i32::from_le_bytes(take(bytes)?).to_string(),
        I64 => i64::from_le_bytes(take(bytes)?).to_string(),
        F64 => float_repr(f64::from_le_bytes(take(bytes)?)),
        F16 | BF16 | F32 | F8E4M3FN | F8E4M3FNUZ | F8E5M2 | F8E5M2FNUZ | F8E8M0FNU => {
            single(number(dtype, bytes)?)
        }
        C32 => complex(&F16, bytes)?,
        BC32 => complex(&BF16, bytes)?,
        C64 => complex(&F32, bytes)?,
        C128 => complex(&F64, bytes)?,
        F4E2M1FNX2 => {
            // torch keeps the first of the two values in the low bits.
            let byte = *bytes.first()?;
            format!("({}, {})", float_repr(decode_f4(byte)), float_repr(decode_f4(byte >> 4)))
        }
        Bits1x8 | Bits2x4 | Bits4x2 | Bits8 => format!("0x{:02x}", bytes.first()?),
        Bits16 => format!("0x{:04x}", u16::from_le_bytes(take(bytes)?)),
        Numpy(numpy) => of_numpy(numpy, bytes)?,
        // Undecoded blocks do not have individual elements.
        Blocks(block) => format!("({} bytes of {} elements)", block.bytes, block.elements),
    })
}

fn take<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.get(..N)?.try_into().ok()
}

fn complex(part: &DType, bytes: &[u8]) -> Option<String> {
    let size = usize::try_from(part.itemsize()).ok()?;
    let value = |bytes: &[u8]| match part {
        DType::F64 => Some(f64::from_le_bytes(take(bytes)?)),
        // The shortest digits of the smaller type, so that 0.1 stays 0.1.
        part => single(number(part, bytes)?).parse().ok(),
    };
    Some(complex_text(value(bytes)?, value(bytes.get(size..)?)?))
}

/// Decodes a float of at most 32 bits, with the same cast as conversions.
fn number(dtype: &DType, bytes: &[u8]) -> Option<f32> {
    let bytes = bytes.get(..usize::try_from(dtype.itemsize()).ok()?)?;
    let mut tensor = Tensor::new(DType::F32, Vec::new(), Layout::Inline(bytes.into()));
    tensor.stored = dtype.clone();
    let value = elements(&FileSet::default(), &tensor, 0..1).ok()?;
    Some(f32::from_le_bytes(take(&value)?))
}

/// Formats a float of at most 32 bits as Python prints numbers.
fn single(value: f32) -> String {
    if !value.is_finite() {
        return float_repr(value.into());
    }
    // The shortest digits that identify this number among 32-bit floats, formatted like a 64-bit
    // float with those digits.
    format!("{value:e}").parse().map(float_repr).unwrap_or_default()
}

/// Maximum nesting of records that are shown; files may nest them arbitrarily deep.
const DEEPEST: u32 = 8;

/// Formats a record in parentheses.
fn record(numpy: &NumpyType, bytes: &[u8], depth: u32) -> Option<String> {
    let fields = numpy.fields.iter().take(MAX_FIELDS);
    let fields: Vec<String> =
        fields.map(|field| field_text(field, bytes, depth)).collect::<Option<_>>()?;
    let more = if numpy.fields.len() > MAX_FIELDS { ", …" } else { "" };
    Some(format!("({}{more})", fields.join(", ")))
}

/// Formats a field of a record: one value, or values in brackets.
pub(crate) fn field_text(field: &Field, record_bytes: &[u8], depth: u32) -> Option<String> {
    let data = record_bytes.get(usize::try_from(field.offset).ok()?..)?;
    let value = |bytes: &[u8]| match &field.dtype {
        DType::Numpy(inner) if !inner.fields.is_empty() => match depth {
            DEEPEST => Some("(…)".to_owned()),
            depth => record(inner, bytes, depth + 1),
        },
        dtype => text(dtype, bytes),
    };
    if field.shape.is_empty() {
        return value(data);
    }
    let count: u64 = field.shape.iter().try_fold(1u64, |n, dim| n.checked_mul(*dim))?;
    let size = usize::try_from(field.dtype.itemsize()).ok()?.max(1);
    let shown = data.chunks_exact(size).take(usize::try_from(count).ok()?.min(MAX_FIELDS));
    let shown: Vec<String> = shown.map(value).collect::<Option<_>>()?;
    let more = if count > MAX_FIELDS as u64 { ", …" } else { "" };
    Some(format!("[{}{more}]", shown.join(", ")))
}

fn of_numpy(numpy: &NumpyType, bytes: &[u8]) -> Option<String> {
    let bytes = bytes.get(..usize::try_from(numpy.itemsize).ok()?)?;
    if !numpy.fields.is_empty() {
        return record(numpy, bytes, 0);
    }
    Some(match numpy.code.chars().next() {
        Some('U') => {
            let points = bytes.chunks_exact(4).map_while(|four| match take(four) {
                Some([0, 0, 0, 0]) | None => None,
                Some(four) => Some(u32::from_le_bytes(four)),
            });
            let text: String =
                points.map(|point| char::from_u32(point).unwrap_or('\u{fffd}')).collect();
            format!("'{}'", visible(&text))
        }
        Some('S') => {
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            format!("b'{}'", bytes[..end].escape_ascii())
        }
        Some(kind @ ('M' | 'm')) => match i64::from_le_bytes(take(bytes)?) {
            i64::MIN => "NaT".into(),
            count if kind == 'M' => {
                dates::text(&numpy.code, count).unwrap_or_else(|| count.to_string())
            }
            count => count.to_string(),
        },
        Some('f') if matches!(numpy.itemsize, 12 | 16) => float_repr(extended(bytes)?),
        _ => {
            let digits: String = bytes.iter().rev().map(|byte| format!("{byte:02x}")).collect();
            format!("0x{digits}")
        }
    })
}

const MAX_FIELDS: usize = 16;

/// Decodes an x87 `long double`, rounded to 64 bits: 64 mantissa bits, 15 exponent bits with bias
/// 16383, a sign bit, and padding.
fn extended(bytes: &[u8]) -> Option<f64> {
    let mantissa = u64::from_le_bytes(take(bytes)?);
    let top = u16::from_le_bytes(take(bytes.get(8..)?)?);
    let exponent = i32::from(top & 0x7fff);
    let magnitude = match (exponent, mantissa << 1) {
        (0x7fff, 0) => f64::INFINITY,
        (0x7fff, _) => f64::NAN,
        _ => {
            let power = (exponent.max(1) - 16_383 - 63).clamp(-2_200, 2_200);
            mantissa as f64 * 2f64.powi(power / 2) * 2f64.powi(power - power / 2)
        }
    };
    Some(if top >> 15 == 0 { magnitude } else { -magnitude })
}

/// Formats a complex number as Python prints it: `(1+2j)`.
pub fn complex_text(re: f64, im: f64) -> String {
    // Python omits the `.0` of both parts, and a real part of positive zero altogether.
    let part = |value: f64| {
        let text = float_repr(value);
        text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
    };
    if re == 0.0 && re.is_sign_positive() {
        return format!("{}j", part(im));
    }
    let sign = if im.is_sign_negative() && !im.is_nan() { "" } else { "+" };
    format!("({}{sign}{}j)", part(re), part(im))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_elements_as_python_does() {
        for (dtype, bytes, text) in [
            (DType::F32, 0.1f32.to_le_bytes().to_vec(), "0.1"),
            (DType::F32, 1e-8f32.to_le_bytes().to_vec(), "1e-08"),
            (DType::F32, f32::NAN.to_le_bytes().to_vec(), "nan"),
            (DType::F32, (-0.0f32).to_le_bytes().to_vec(), "-0.0"),
            (DType::F64, 0.1f64.to_le_bytes().to_vec(), "0.1"),
            (DType::F16, vec![0x00, 0x3c], "1.0"),
            (DType::BF16, vec![0xc0, 0xbf], "-1.5"),
            (DType::F8E4M3FN, vec![0x38], "1.0"),
            (DType::I64, (-3i64).to_le_bytes().to_vec(), "-3"),
            (DType::Bool, vec![1], "True"),
            (DType::C64, [1f32.to_le_bytes(), (-0.1f32).to_le_bytes()].concat(), "(1-0.1j)"),
            (DType::F4E2M1FNX2, vec![0xf2], "(1.0, -6.0)"),
            (DType::Bits16, vec![0x34, 0x12], "0x1234"),
        ] {
            assert_eq!(element_text(&dtype, &bytes), text, "{dtype}");
        }
        assert_eq!(element_text(&DType::F32, &[0, 0]), "");
    }

    #[test]
    fn prints_known_numpy_types() {
        let numpy = |code: &str, itemsize| {
            DType::Numpy(std::sync::Arc::new(NumpyType {
                name: String::new(),
                code: code.into(),
                itemsize,
                words: Vec::new(),
                fields: Vec::new(),
            }))
        };
        assert_eq!(element_text(&numpy("U2", 8), b"a\0\0\0\0\0\0\0"), "'a'");
        assert_eq!(element_text(&numpy("S3", 3), b"ab\0"), "b'ab'");
        assert_eq!(element_text(&numpy("M8[D]", 8), &i64::MIN.to_le_bytes()), "NaT");
        assert_eq!(element_text(&numpy("V2", 2), &[1, 2]), "0x0201");
    }
}
