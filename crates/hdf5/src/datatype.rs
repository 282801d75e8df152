//! Datatypes.
//!
//! Parsed here rather than by hdf5-reader because that drops where a float keeps its exponent,
//! which is all that tells bfloat16 from float16 and the eight-bit floats from each other, and
//! does not know the complex numbers of HDF5 2.0.

use std::sync::Arc;

use hdf5_reader::io::Cursor;
use statelens_checkpoint::{ByteOrder, Error, Result, Text};

use crate::error::from_reader;

/// What one element of a dataset or attribute is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datatype {
    /// Bytes of one element in the file.
    pub size: u64,
    /// What they mean.
    pub class: Class,
}

/// The classes of datatypes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Class {
    /// Two's complement or unsigned.
    Int {
        /// Has a sign.
        signed: bool,
        /// Order of its bytes.
        order: ByteOrder,
    },
    /// Binary floating point.
    Float {
        /// Where its parts are.
        format: FloatFormat,
        /// Order of its bytes; `None` for the VAX's.
        order: Option<ByteOrder>,
    },
    /// A date of an old, unused class.
    Time,
    /// Text of a fixed number of bytes.
    Str(Padding),
    /// Bits without a meaning.
    Bits {
        /// Order of its bytes.
        order: ByteOrder,
    },
    /// Bytes without a meaning.
    Opaque {
        /// What the writer calls them.
        tag: Text,
    },
    /// A record.
    Compound(Vec<Member>),
    /// A reference to an object or a region of one.
    Reference {
        /// To a region, not a whole object.
        region: bool,
    },
    /// Named values of an integer type.
    Enum {
        /// The integer type.
        base: Arc<Datatype>,
        /// Names and the bytes of their values, in file order.
        members: Vec<(Text, Vec<u8>)>,
    },
    /// Text of any length, kept in a heap.
    VlenStr,
    /// A sequence of any length, kept in a heap.
    Vlen(Arc<Datatype>),
    /// An array in each element.
    Array {
        /// The elements of the array.
        base: Arc<Datatype>,
        /// Its shape.
        dims: Vec<u64>,
    },
    /// Two floats: real, imaginary. Since HDF5 2.0.
    Complex(Arc<Datatype>),
}

/// Where the parts of a float are, in bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FloatFormat {
    /// Bits in use.
    pub precision: u16,
    /// Bits of the exponent.
    pub exponent: u8,
    /// Bits of the mantissa that are stored.
    pub mantissa: u8,
    /// Exponent of one, as it is stored.
    pub bias: u32,
}

/// How the end of a text of fixed size is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Padding {
    /// The first NUL ends it.
    Null,
    /// NULs at the end do not belong to it.
    NullPad,
    /// Spaces at the end do not belong to it.
    Space,
}

/// One field of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: Text,
    /// Bytes from the start of the record.
    pub offset: u64,
    /// What it holds.
    pub datatype: Datatype,
}

/// Records in records in arrays: libhdf5's own tests stop at five.
const DEEPEST: u32 = 24;

impl Datatype {
    /// Reads a datatype message.
    pub(crate) fn parse(body: &[u8]) -> Result<Self> {
        Self::read(&mut Cursor::new(body), DEEPEST)
    }

    /// Two values, FALSE and TRUE, as h5py writes bools.
    pub fn is_bool(&self) -> bool {
        let Class::Enum { base, members } = &self.class else { return false };
        let [(no, zero), (yes, one)] = members.as_slice() else { return false };
        base.size == 1 && *no == "FALSE" && *yes == "TRUE" && *zero == [0] && *one == [1]
    }

    /// For people: `int32`, `float64`, `string`, `record of 3 fields`.
    pub fn describe(&self) -> String {
        let bits = self.size * 8;
        match &self.class {
            Class::Int { signed: true, .. } => format!("int{bits}"),
            Class::Int { signed: false, .. } => format!("uint{bits}"),
            Class::Float { .. } => format!("float{bits}"),
            Class::Time => format!("time of {bits} bits"),
            Class::Str(_) => format!("string of {} bytes", self.size),
            Class::Bits { .. } => format!("bitfield of {bits} bits"),
            Class::Opaque { .. } => format!("opaque of {} bytes", self.size),
            Class::Compound(members) => format!("record of {} fields", members.len()),
            Class::Reference { region: false } => "object reference".into(),
            Class::Reference { region: true } => "region reference".into(),
            Class::Enum { members, .. } => format!("enum of {} values", members.len()),
            Class::VlenStr => "string".into(),
            Class::Vlen(base) => format!("sequence of {}", base.describe()),
            Class::Array { base, dims } => format!("array {dims:?} of {}", base.describe()),
            Class::Complex(_) => format!("complex{bits}"),
        }
    }

    fn read(cursor: &mut Cursor<'_>, depth: u32) -> Result<Self> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(Error::limit(format!("a datatype nests deeper than {DEEPEST} levels")));
        };
        let head = cursor.read_u8().map_err(from_reader)?;
        let (version, class) = (head >> 4, head & 15);
        let bits = cursor.read_bytes(3).map_err(from_reader)?;
        let bits = u32::from(bits[0]) | u32::from(bits[1]) << 8 | u32::from(bits[2]) << 16;
        let size = u64::from(cursor.read_u32_le().map_err(from_reader)?);
        let order = if bits & 1 == 0 { ByteOrder::Little } else { ByteOrder::Big };
        let class = match class {
            0 => {
                let offset = cursor.read_u16_le().map_err(from_reader)?;
                let precision = cursor.read_u16_le().map_err(from_reader)?;
                inside(offset, precision, size)?;
                let signed = bits & 8 != 0;
                // A number that takes a part of its bits would have to be moved and extended.
                match offset > 0 || signed && u64::from(precision) < size * 8 {
                    true => Class::Opaque {
                        tag: format!("{precision} bits of an integer, from bit {offset}").into(),
                    },
                    false => Class::Int { signed, order },
                }
            }
            1 => {
                let start = cursor.position();
                let class = read_float(cursor, bits).map_err(from_reader)?;
                cursor.set_position(start);
                let (offset, precision) = (cursor.read_u16_le(), cursor.read_u16_le());
                let (offset, precision) =
                    (offset.map_err(from_reader)?, precision.map_err(from_reader)?);
                inside(offset, precision, size)?;
                // Where exponent and mantissa are, and how long each is.
                let parts = cursor.read_bytes(4).map_err(from_reader)?;
                for part in parts.chunks(2) {
                    let end = part.iter().map(|byte| u16::from(*byte)).sum::<u16>();
                    if end > offset.saturating_add(precision) {
                        return Err(Error::damaged("a float with parts outside of its bits"));
                    }
                }
                cursor.skip(4).map_err(from_reader)?;
                class
            }
            2 => {
                cursor.skip(2).map_err(from_reader)?;
                Class::Time
            }
            3 => Class::Str(match bits & 15 {
                0 => Padding::Null,
                1 => Padding::NullPad,
                _ => Padding::Space,
            }),
            4 => {
                cursor.skip(4).map_err(from_reader)?;
                Class::Bits { order }
            }
            5 => {
                let tag = cursor.read_bytes((bits & 0xff) as usize).map_err(from_reader)?;
                Class::Opaque { tag: text(tag) }
            }
            6 => read_compound(cursor, version, bits & 0xffff, size, depth)?,
            7 => Class::Reference { region: matches!(bits & 15, 1 | 3) },
            8 => read_enum(cursor, version, bits & 0xffff, depth)?,
            9 => {
                let base = Self::read(cursor, depth)?;
                if bits & 15 == 1 { Class::VlenStr } else { Class::Vlen(base.into()) }
            }
            10 => {
                let rank = cursor.read_u8().map_err(from_reader)?;
                if version < 3 {
                    cursor.skip(3).map_err(from_reader)?;
                }
                let mut dims = Vec::new();
                for _ in 0..rank {
                    dims.push(u64::from(cursor.read_u32_le().map_err(from_reader)?));
                }
                if version < 3 {
                    cursor.skip(4 * usize::from(rank)).map_err(from_reader)?;
                }
                Class::Array { base: Self::read(cursor, depth)?.into(), dims }
            }
            11 => Class::Complex(Self::read(cursor, depth)?.into()),
            other => {
                return Err(Error::unsupported(format!("datatypes of class {other}")));
            }
        };
        if size == 0 && !matches!(class, Class::Str(_) | Class::Opaque { .. }) {
            return Err(Error::damaged("a datatype without a size"));
        }
        Ok(Self { size, class })
    }
}

/// Whether the bits of a number lie inside its bytes.
fn inside(offset: u16, precision: u16, size: u64) -> Result<()> {
    match u64::from(offset) + u64::from(precision) <= size.saturating_mul(8) && precision > 0 {
        true => Ok(()),
        false => Err(Error::damaged(format!(
            "a number of {precision} bits from bit {offset} in {size} bytes"
        ))),
    }
}

fn read_float(cursor: &mut Cursor<'_>, bits: u32) -> hdf5_reader::error::Result<Class> {
    let _offset = cursor.read_u16_le()?;
    let precision = cursor.read_u16_le()?;
    let _exponent_at = cursor.read_u8()?;
    let exponent = cursor.read_u8()?;
    let _mantissa_at = cursor.read_u8()?;
    let mantissa = cursor.read_u8()?;
    let bias = cursor.read_u32_le()?;
    let order = match (bits & 1, bits >> 6 & 1) {
        (0, 0) => Some(ByteOrder::Little),
        (1, 0) => Some(ByteOrder::Big),
        _ => None,
    };
    Ok(Class::Float { format: FloatFormat { precision, exponent, mantissa, bias }, order })
}

fn read_compound(
    cursor: &mut Cursor<'_>,
    version: u8,
    count: u32,
    size: u64,
    depth: u32,
) -> Result<Class> {
    let mut members = Vec::new();
    for _ in 0..count {
        let name = read_name(cursor, version < 3).map_err(from_reader)?;
        let width = match version {
            0..3 => 4,
            _ => (1..8).find(|width| size >> (8 * width) == 0).unwrap_or(8),
        };
        let offset = cursor.read_uvar(width).map_err(from_reader)?;
        let mut dims = Vec::new();
        if version == 1 {
            let rank = cursor.read_u8().map_err(from_reader)?;
            cursor.skip(11).map_err(from_reader)?;
            for index in 0..4 {
                let dim = cursor.read_u32_le().map_err(from_reader)?;
                if index < rank {
                    dims.push(u64::from(dim));
                }
            }
        }
        let mut datatype = Datatype::read(cursor, depth)?;
        if !dims.is_empty() {
            let total = dims.iter().try_fold(datatype.size, |size, dim| size.checked_mul(*dim));
            let size = total.ok_or_else(|| Error::damaged("a field of a record is too large"))?;
            datatype = Datatype { size, class: Class::Array { base: datatype.into(), dims } };
        }
        if offset.checked_add(datatype.size).is_none_or(|end| end > size) {
            return Err(Error::damaged(format!("the field {name} lies outside its record")));
        }
        members.push(Member { name, offset, datatype });
    }
    Ok(Class::Compound(members))
}

fn read_enum(cursor: &mut Cursor<'_>, version: u8, count: u32, depth: u32) -> Result<Class> {
    let base = Datatype::read(cursor, depth)?;
    let mut names = Vec::new();
    for _ in 0..count {
        names.push(read_name(cursor, version < 3).map_err(from_reader)?);
    }
    let mut members = Vec::new();
    let size = usize::try_from(base.size).unwrap_or(usize::MAX);
    for name in names {
        members.push((name, cursor.read_bytes(size).map_err(from_reader)?.to_vec()));
    }
    Ok(Class::Enum { base: base.into(), members })
}

/// A name that a NUL ends; `padded` with it to a multiple of eight bytes.
fn read_name(cursor: &mut Cursor<'_>, padded: bool) -> hdf5_reader::error::Result<Text> {
    let rest = cursor.peek_bytes(cursor.remaining() as usize)?;
    let len = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
    let name = text(&rest[..len]);
    let whole = if padded { (len + 8) & !7 } else { len + 1 };
    cursor.skip(whole)?;
    Ok(name)
}

/// Text up to the first NUL; bytes that are no UTF-8 become replacement characters.
pub(crate) fn text(bytes: &[u8]) -> Text {
    let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    whole_text(&bytes[..len])
}

/// All bytes as text, NULs included.
pub(crate) fn whole_text(bytes: &[u8]) -> Text {
    Text::from_surrogatepass(bytes)
        .unwrap_or_else(|_| String::from_utf8_lossy(bytes).into_owned().into())
}
