//! Formats values of any datatype for display.

use statelens_checkpoint::{Error, Result, Text, float_repr};

use crate::block::little as address;
use crate::datatype::{Class, Datatype, FloatFormat, Member};
use crate::decode::{fixed_text, int, little};
use crate::file::selection;
use crate::{Hdf5File, ObjectTree};

/// Formats values: numbers as in Python, texts in quotes, names of enums, and what references refer
/// to. Equal texts mean equal values: a value that can't be formatted in this way is an error.
pub(crate) struct Renderer<'a> {
    pub(crate) file: &'a Hdf5File,
    /// Used to look up the paths of references.
    pub(crate) tree: Option<&'a ObjectTree>,
    /// Receives the text piece by piece. Many elements may refer to the same bytes of a heap, so the
    /// text may be much longer than the file.
    pub(crate) out: &'a mut dyn FnMut(&str) -> Result<()>,
}

impl Renderer<'_> {
    /// Formats the values in `data`, in brackets by the dimensions of `shape`. The parser limits the
    /// nesting of datatypes, so recursion is bounded.
    pub(crate) fn nested(&mut self, datatype: &Datatype, shape: &[u64], data: &[u8]) -> Result<()> {
        // The number of elements in each row, outermost first.
        let mut rows: Vec<usize> = Vec::with_capacity(shape.len());
        for dim in shape.iter().rev() {
            let inner = rows.last().copied().unwrap_or(1);
            rows.push(inner.saturating_mul(usize::try_from(*dim).unwrap_or(usize::MAX)).max(1));
        }
        let count = |at: usize| rows.iter().filter(|row| at.is_multiple_of(**row)).count();
        let elements = data.chunks_exact(size_of(datatype)?);
        let len = elements.len();
        for (at, bytes) in elements.enumerate() {
            if at > 0 {
                (self.out)(&"]".repeat(count(at)))?;
                (self.out)(", ")?;
            }
            (self.out)(&"[".repeat(count(at)))?;
            self.value(datatype, bytes)?;
        }
        (self.out)(if len == 0 && !rows.is_empty() { "[" } else { "" })?;
        (self.out)(&"]".repeat(if len == 0 { rows.len().min(1) } else { rows.len() }))
    }

    /// Formats one value.
    pub(crate) fn value(&mut self, datatype: &Datatype, bytes: &[u8]) -> Result<()> {
        let text = match &datatype.class {
            Class::Int { signed, order } => int(bytes, *signed, *order).to_string(),
            Class::Bits { order } => int(bytes, false, *order).to_string(),
            Class::Float { .. } => real(datatype, bytes),
            Class::Enum { .. } if datatype.is_bool() => {
                if bytes == [0] { "False" } else { "True" }.into()
            }
            Class::Enum { base, members } => {
                match members.iter().find(|(_, value)| value == bytes) {
                    Some((name, _)) => name.to_string(),
                    None => return self.value(base, bytes),
                }
            }
            Class::Str(padding) => return self.quoted(&fixed_text(bytes, *padding)),
            Class::VlenStr => {
                let text = self.file.vlen_element(bytes, 1)?;
                let text = text.as_slice();
                return self.quoted(&Text::decode(text.strip_suffix(&[0]).unwrap_or(text)));
            }
            Class::Vlen(base) => {
                let values = self.file.vlen_element(bytes, base.size)?;
                let values = values.as_slice();
                return self.nested(base, &[(values.len() / size_of(base)?) as u64], values);
            }
            Class::Array { base, dims } => return self.nested(base, dims, bytes),
            Class::Complex(base) => complex(base, bytes)?,
            Class::Compound(members) => match members.as_slice() {
                [re, im] if is_complex(re, im) => complex(&re.datatype, bytes)?,
                members => {
                    for (at, member) in members.iter().enumerate() {
                        (self.out)(if at == 0 { "{" } else { ", " })?;
                        (self.out)(&format!("{}: ", member.name))?;
                        self.value(&member.datatype, field(member, bytes)?)?;
                    }
                    if members.is_empty() { "{}" } else { "}" }.into()
                }
            },
            Class::Reference { region } => self.reference(*region, bytes)?,
            Class::Time | Class::Opaque { .. } => hex(bytes),
        };
        (self.out)(&text)
    }

    /// Writes a text in quotes, with quotes and backslashes in it escaped.
    fn quoted(&mut self, text: &Text) -> Result<()> {
        (self.out)("'")?;
        for piece in text.pieces() {
            match piece {
                Ok(piece) if !piece.contains(['\'', '\\']) => (self.out)(piece)?,
                Ok(piece) => (self.out)(&piece.replace('\\', "\\\\").replace('\'', "\\'"))?,
                Err(surrogate) => (self.out)(&format!("\\u{surrogate:04x}"))?,
            }
        }
        (self.out)("'")
    }

    /// Describes a reference by the path of its object and the selection of its region.
    fn reference(&self, region: bool, bytes: &[u8]) -> Result<String> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok("null reference".into());
        }
        let width = usize::from(self.file.source.widths.offset);
        let path = |bytes: &[u8]| {
            let at = address(bytes);
            self.tree.and_then(|tree| tree.path(at)).ok_or_else(|| {
                let what = "a reference to an object that no group contains";
                self.file.source.at(at, Error::unsupported(what))
            })
        };
        match (region, bytes.len()) {
            (false, len) if len == width => Ok(format!("reference to {}", path(bytes)?)),
            (true, len) if len == width + 4 => {
                let target = self.file.heap_object(bytes)?;
                let (object, selection) =
                    target.as_slice().split_at_checked(width).ok_or_else(selection::short)?;
                let (path, selection) = (path(object)?, selection::describe(selection)?);
                Ok(format!("reference to {selection} of {path}"))
            }
            _ => Err(Error::unsupported("a reference of a kind that HDF5 1.12 introduced")),
        }
    }
}

fn complex(base: &Datatype, bytes: &[u8]) -> Result<String> {
    let (re, im) = bytes.split_at(size_of(base)?.min(bytes.len()));
    // Python prints parts of complex numbers as `1`, not `1.0`.
    let part = |bytes: &[u8]| {
        let text = real(base, bytes);
        text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
    };
    let (re, im) = (part(re), part(im));
    let sign = if im.starts_with(['-', '+']) { "" } else { "+" };
    Ok(format!("({re}{sign}{im}j)"))
}

/// Formats a float like Python; one that 64 bits don't hold exactly as its bytes.
fn real(datatype: &Datatype, bytes: &[u8]) -> String {
    match &datatype.class {
        Class::Float { format, order: Some(order) } => {
            let bytes = little(bytes, *order);
            match float(*format, &bytes) {
                Some((number, true)) => float_repr(number),
                _ => hex(&bytes),
            }
        }
        _ => hex(bytes),
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

fn hex(bytes: &[u8]) -> String {
    format!("0x{}", statelens_checkpoint::hex(bytes))
}

/// Decodes a binary float from its little-endian bytes, rounded to 64 bits, and returns whether the
/// result is exact; `None` if it has more than 128 bits.
///
/// Format: "Floating-Point" of the datatype message, HDF5 File Format Specification 3.0, section
/// IV.A.2.d.
pub(crate) fn float(format: FloatFormat, bytes: &[u8]) -> Option<(f64, bool)> {
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
    let digits = 128u32.saturating_sub(mantissa.leading_zeros() + mantissa.trailing_zeros());
    let is_held = magnitude.is_normal() || mantissa == 0 || (format.exponent, bias) == (11, 1023);
    let is_exact = exponent == last || digits <= 53 && is_held;
    Some((if negative { -magnitude } else { magnitude }, is_exact))
}

/// Returns `mantissa` times two to the power of `exponent`.
fn scaled(mantissa: u128, exponent: i64) -> f64 {
    let exponent = exponent.clamp(-20_000, 20_000) as i32;
    // In two steps, so that neither factor is out of range by itself.
    let half = exponent / 2;
    mantissa as f64 * 2f64.powi(half) * 2f64.powi(exponent - half)
}
