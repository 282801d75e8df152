//! Formats values of any datatype for display.

use std::cell::Cell;

use statelens_checkpoint::{Error, Limits, Result, Text, float_repr};

use crate::datatype::{Class, Datatype, FloatFormat, Member};
use crate::decode::{fixed_text, int, little};
use crate::{Hdf5File, ObjectTree};

/// Formats values: numbers as in Python, texts in quotes, names of enums, paths of references.
pub(crate) struct Renderer<'a> {
    pub(crate) file: &'a Hdf5File,
    /// Used to look up the paths of references.
    pub(crate) tree: Option<&'a ObjectTree>,
    /// Limit on the bytes of text that are written, and the number written. Many elements may
    /// refer to the same bytes of a heap, so the text may be much longer than the file.
    pub(crate) max_text: u64,
    pub(crate) written: Cell<u64>,
}

impl Renderer<'_> {
    /// Formats the values in `data`, in brackets by the dimensions of `shape`; a single value
    /// without brackets.
    pub(crate) fn values(&self, datatype: &Datatype, shape: &[u64], data: &[u8]) -> Result<String> {
        let size = size_of(datatype)?;
        let values: Vec<String> = data
            .chunks_exact(size)
            .map(|bytes| self.value(datatype, bytes))
            .collect::<Result<_>>()?;
        Ok(match values.as_slice() {
            [value] => value.clone(),
            values => nested(shape, values),
        })
    }

    /// Formats one value, within the limit.
    fn value(&self, datatype: &Datatype, bytes: &[u8]) -> Result<String> {
        let text = self.text(datatype, bytes)?;
        let written = self.written.get().saturating_add(text.len() as u64);
        Limits::check("bytes of the text of one value", written, self.max_text)?;
        self.written.set(written);
        Ok(text)
    }

    /// Formats one value. The parser limits the nesting of datatypes, so recursion is bounded.
    fn text(&self, datatype: &Datatype, bytes: &[u8]) -> Result<String> {
        Ok(match &datatype.class {
            Class::Int { signed, order } => int(bytes, *signed, *order).to_string(),
            Class::Bits { order } => int(bytes, false, *order).to_string(),
            Class::Float { format, order: Some(order) } => {
                float(*format, &little(bytes, *order)).map_or_else(|| hex(bytes), float_repr)
            }
            Class::Enum { .. } if datatype.is_bool() => {
                if bytes == [0] { "False" } else { "True" }.into()
            }
            Class::Enum { base, members } => {
                match members.iter().find(|(_, value)| value == bytes) {
                    Some((name, _)) => name.to_string(),
                    None => self.value(base, bytes)?,
                }
            }
            Class::Str(padding) => format!("'{}'", fixed_text(bytes, *padding)),
            Class::VlenStr => {
                let text = self.file.vlen_elements(datatype, bytes)?.concat();
                let text = text.strip_suffix(&[0]).unwrap_or(&text);
                format!("'{}'", Text::decode(text))
            }
            Class::Vlen(base) => {
                let values = self.file.vlen_elements(datatype, bytes)?.concat();
                let values = values.chunks_exact(size_of(base)?);
                let values: Vec<String> =
                    values.map(|bytes| self.value(base, bytes)).collect::<Result<_>>()?;
                format!("[{}]", values.join(", "))
            }
            Class::Array { base, dims } => {
                let values = bytes.chunks_exact(size_of(base)?);
                let values: Vec<String> =
                    values.map(|bytes| self.value(base, bytes)).collect::<Result<_>>()?;
                nested(dims, &values)
            }
            Class::Complex(base) => self.complex(base, bytes)?,
            Class::Compound(members) => match members.as_slice() {
                [re, im] if is_complex(re, im) => self.complex(&re.datatype, bytes)?,
                members => {
                    let fields: Vec<String> = members
                        .iter()
                        .map(|member| {
                            let value = self.value(&member.datatype, field(member, bytes)?)?;
                            Ok(format!("{}: {value}", member.name))
                        })
                        .collect::<Result<_>>()?;
                    format!("{{{}}}", fields.join(", "))
                }
            },
            Class::Reference { region: false } => self.reference(bytes),
            Class::Float { order: None, .. }
            | Class::Reference { region: true }
            | Class::Time
            | Class::Opaque { .. } => hex(bytes),
        })
    }

    fn complex(&self, base: &Datatype, bytes: &[u8]) -> Result<String> {
        let (re, im) = bytes.split_at(size_of(base)?.min(bytes.len()));
        // Python prints parts of complex numbers as `1`, not `1.0`.
        let part = |bytes: &[u8]| {
            let text = self.value(base, bytes)?;
            Ok::<_, Error>(text.strip_suffix(".0").map_or(text.clone(), str::to_owned))
        };
        let (re, im) = (part(re)?, part(im)?);
        let sign = if im.starts_with(['-', '+']) { "" } else { "+" };
        Ok(format!("({re}{sign}{im}j)"))
    }

    /// Returns the path of the object that a reference points to, or its address.
    fn reference(&self, bytes: &[u8]) -> String {
        let address = match bytes.len() {
            ..=8 => bytes.iter().rev().fold(0u64, |address, byte| address << 8 | u64::from(*byte)),
            _ => return hex(bytes),
        };
        if address == 0 {
            return "null reference".into();
        }
        match self.tree.and_then(|tree| tree.path(address)) {
            Some(path) => format!("reference to {path}"),
            None => format!("reference to the object at byte {address}"),
        }
    }
}

fn size_of(datatype: &Datatype) -> Result<usize> {
    usize::try_from(datatype.size)
        .ok()
        .filter(|size| *size > 0)
        .ok_or_else(|| Error::damaged("a datatype of size 0, or larger than memory"))
}

fn field<'a>(member: &Member, bytes: &'a [u8]) -> Result<&'a [u8]> {
    let start = usize::try_from(member.offset).unwrap_or(usize::MAX);
    let end = start.saturating_add(size_of(&member.datatype)?);
    bytes.get(start..end).ok_or_else(|| Error::damaged("a field is outside its record"))
}

/// Returns whether a record is a complex number of h5py: floats `r` and `i`.
fn is_complex(re: &Member, im: &Member) -> bool {
    re.name == "r"
        && im.name == "i"
        && re.datatype == im.datatype
        && matches!(re.datatype.class, Class::Float { .. })
        && (re.offset, im.offset) == (0, re.datatype.size)
}

/// Puts values in brackets by dimensions, the last one varying fastest.
fn nested(shape: &[u64], values: &[String]) -> String {
    let mut parts = values.to_vec();
    for dim in shape.iter().skip(1).rev() {
        let dim = usize::try_from(*dim).unwrap_or(usize::MAX).max(1);
        parts = parts.chunks(dim).map(|row| format!("[{}]", row.join(", "))).collect();
    }
    format!("[{}]", parts.join(", "))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold("0x".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

/// Decodes a binary float from its little-endian bytes, rounded to 64 bits; `None` if it has more
/// than 128 bits.
///
/// Format: "Floating-Point" of the datatype message, HDF5 File Format Specification 3.0, section
/// IV.A.2.d.
pub(crate) fn float(format: FloatFormat, bytes: &[u8]) -> Option<f64> {
    if bytes.len() > 16 {
        return None;
    }
    let bits = bytes.iter().rev().fold(0u128, |bits, byte| bits << 8 | u128::from(*byte));
    let part = |at: u8, len: u8| {
        let mask = 1u128.checked_shl(len.into()).map_or(u128::MAX, |bit| bit - 1);
        bits.checked_shr(at.into()).unwrap_or(0) & mask
    };
    let negative = bits.checked_shr(format.sign_at.into()).unwrap_or(0) & 1 == 1;
    let exponent = i64::try_from(part(format.exponent_at, format.exponent)).ok()?;
    let mantissa = part(format.mantissa_at, format.mantissa);
    let width = i64::from(format.mantissa);
    let bias = i64::from(format.bias);
    let last = 1i64.checked_shl(format.exponent.into())? - 1;
    let fraction = match format.implied {
        true => mantissa,
        false => mantissa & !1u128.checked_shl(u32::from(format.mantissa) - 1)?,
    };
    let magnitude = match exponent {
        _ if exponent == last && fraction == 0 => f64::INFINITY,
        _ if exponent == last => f64::NAN,
        0 if format.implied => scaled(mantissa, 1 - bias - width),
        _ if format.implied => {
            scaled(mantissa | 1u128.checked_shl(format.mantissa.into())?, exponent - bias - width)
        }
        _ => scaled(mantissa, exponent.max(1) - bias - (width - 1)),
    };
    Some(if negative { -magnitude } else { magnitude })
}

/// Returns `mantissa` times two to the power of `exponent`.
fn scaled(mantissa: u128, exponent: i64) -> f64 {
    let exponent = exponent.clamp(-20_000, 20_000) as i32;
    // In two steps, so that neither factor is out of range by itself.
    let half = exponent / 2;
    mantissa as f64 * 2f64.powi(half) * 2f64.powi(exponent - half)
}
