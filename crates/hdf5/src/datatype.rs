//! Datatypes.
//!
//! Parsed here because hdf5-reader drops the position of a float's exponent, which alone
//! distinguishes bfloat16 from float16 and the eight-bit floats from each other, and does not know
//! the complex numbers of HDF5 2.0.

use std::sync::Arc;

use hdf5_reader::io::Cursor;
use statelens_checkpoint::{ByteOrder, Error, Result, Text};

use crate::decode::{Padding, int, text};
use crate::error::from_reader;

/// The type of the elements of a dataset or attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datatype {
    pub size: u64,
    pub class: Class,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Class {
    /// An integer, in two's complement or unsigned.
    Int {
        signed: bool,
        order: ByteOrder,
    },
    /// Binary floating point.
    Float {
        format: FloatFormat,
        order: Option<ByteOrder>,
    },
    /// A date of an old, unused class.
    Time,
    /// Text of a fixed number of bytes.
    Str(Padding),
    /// Bits without further meaning.
    Bits {
        order: ByteOrder,
    },
    /// Bytes without further meaning.
    Opaque {
        /// The writer's name for them.
        tag: Text,
    },
    Compound(Vec<Member>),
    /// A reference to an object or a region of one.
    Reference {
        /// Whether it refers to a region rather than a whole object.
        region: bool,
    },
    /// Named values of an integer type.
    Enum {
        base: Arc<Datatype>,
        /// Names with the bytes of their values, in file order.
        members: Vec<(Text, Vec<u8>)>,
    },
    /// Text of any length, stored in a heap.
    VlenStr,
    /// A sequence of any length, stored in a heap.
    Vlen(Arc<Datatype>),
    /// A fixed-size array in each element.
    Array {
        base: Arc<Datatype>,
        dims: Vec<u64>,
    },
    /// Two floats: real, imaginary. Since HDF5 2.0.
    Complex(Arc<Datatype>),
}

/// Positions of the parts of a float, in bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FloatFormat {
    pub precision: u16,
    pub exponent: u8,
    pub mantissa: u8,
    /// Bias of the stored exponent.
    pub bias: u32,
    pub sign_at: u8,
    /// Lowest bit of the exponent.
    pub exponent_at: u8,
    /// Lowest bit of the mantissa.
    pub mantissa_at: u8,
    /// Whether the highest bit of the mantissa is implied rather than stored.
    pub implied: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub name: Text,
    /// Bytes from the start of the record.
    pub offset: u64,
    pub datatype: Datatype,
}

/// Maximum nesting of records and arrays: libhdf5's own tests stop at five.
const DEEPEST: u32 = 24;
/// The newest version of datatypes, that of HDF5 2.0.
const NEWEST: u8 = 5;

impl Datatype {
    /// Parses a datatype message. Also returns whether a number in it leaves more than half of its
    /// bits unused: libhdf5 since 1.14.4 considers that damage if no checksum covers the message.
    pub(crate) fn parse(body: &[u8]) -> Result<(Self, bool)> {
        let mut sparse = false;
        let datatype = Self::read(&mut Cursor::new(body), DEEPEST, &mut sparse)?;
        Ok((datatype, sparse))
    }

    /// Returns whether this is an enum of FALSE and TRUE, as h5py writes bools.
    pub fn is_bool(&self) -> bool {
        let Class::Enum { base, members } = &self.class else { return false };
        let [(no, zero), (yes, one)] = members.as_slice() else { return false };
        base.size == 1 && *no == "FALSE" && *yes == "TRUE" && *zero == [0] && *one == [1]
    }

    /// Returns whether it is a reference to an object.
    pub fn is_reference(&self) -> bool {
        matches!(self.class, Class::Reference { region: false })
    }

    /// Returns the name to display: `int32`, `float64`, `string`, `record (id int32, x float64)`.
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
            Class::Compound(members) => {
                let field = |member: &Member| {
                    format!("{} {}", quoted(&member.name), member.datatype.describe())
                };
                format!("record ({})", listed(members.iter().map(field)))
            }
            Class::Reference { region: false } => "object reference".into(),
            Class::Reference { region: true } => "region reference".into(),
            Class::Enum { .. } if self.is_bool() => "bool".into(),
            Class::Enum { base, members } => {
                let (signed, order) = match base.class {
                    Class::Int { signed, order } => (signed, order),
                    _ => (false, ByteOrder::Little),
                };
                let names = members.iter().map(|(name, value)| {
                    format!("{} = {}", quoted(name), int(value, signed, order))
                });
                format!("enum of {} ({})", base.describe(), listed(names))
            }
            Class::VlenStr => "string".into(),
            Class::Vlen(base) => format!("sequence of {}", base.describe()),
            Class::Array { base, dims } => format!("array {dims:?} of {}", base.describe()),
            Class::Complex(_) => format!("complex{bits}"),
        }
    }

    fn read(cursor: &mut Cursor<'_>, depth: u32, sparse: &mut bool) -> Result<Self> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(Error::limit(format!("a datatype nests deeper than {DEEPEST} levels")));
        };
        let head = cursor.read_u8().map_err(from_reader)?;
        let (version, class) = (head >> 4, head & 15);
        let bits = cursor.read_bytes(3).map_err(from_reader)?;
        let bits = u32::from(bits[0]) | u32::from(bits[1]) << 8 | u32::from(bits[2]) << 16;
        let size = u64::from(cursor.read_u32_le().map_err(from_reader)?);
        if !(1..=NEWEST).contains(&version) {
            return Err(Error::damaged(format!("a datatype of version {version}"))
                .expected(format!("one of 1 to {NEWEST}")));
        }
        let order = if bits & 1 == 0 { ByteOrder::Little } else { ByteOrder::Big };
        let class = match class {
            0 => {
                let offset = cursor.read_u16_le().map_err(from_reader)?;
                let precision = cursor.read_u16_le().map_err(from_reader)?;
                inside(offset, precision, size)?;
                *sparse |= is_sparse(offset, precision, size);
                let signed = bits & 8 != 0;
                // A number that uses part of its bits would have to be shifted and sign-extended.
                match offset > 0 || signed && u64::from(precision) < size * 8 {
                    true => Class::Opaque {
                        tag: format!("{precision} bits of an integer, from bit {offset}").into(),
                    },
                    false => Class::Int { signed, order },
                }
            }
            1 => {
                let start = cursor.position();
                let class = read_float(cursor, version, bits).map_err(from_reader)?;
                cursor.set_position(start);
                let (offset, precision) = (cursor.read_u16_le(), cursor.read_u16_le());
                let (offset, precision) =
                    (offset.map_err(from_reader)?, precision.map_err(from_reader)?);
                inside(offset, precision, size)?;
                *sparse |= is_sparse(offset, precision, size);
                let parts = cursor.read_bytes(4).map_err(from_reader)?;
                check_float(bits, [parts[0], parts[1], parts[2], parts[3]], offset, precision)?;
                cursor.skip(4).map_err(from_reader)?;
                class
            }
            2 => {
                cursor.skip(2).map_err(from_reader)?;
                Class::Time
            }
            3 => Class::Str(padding(bits & 15, bits >> 4 & 15)?),
            4 => {
                let (offset, precision) = (cursor.read_u16_le(), cursor.read_u16_le());
                let (offset, precision) =
                    (offset.map_err(from_reader)?, precision.map_err(from_reader)?);
                *sparse |= is_sparse(offset, precision, size);
                Class::Bits { order }
            }
            5 => {
                if bits & 7 != 0 {
                    return Err(Error::damaged(format!(
                        "a datatype's tag of {} bytes",
                        bits & 0xff
                    ))
                    .expected("a multiple of 8"));
                }
                let tag = cursor.read_bytes((bits & 0xff) as usize).map_err(from_reader)?;
                Class::Opaque { tag: text(tag) }
            }
            6 => read_compound(cursor, version, bits & 0xffff, size, depth, sparse)?,
            // HDF5 1.12 added three kinds.
            7 => match bits & 15 {
                kind @ (0 | 1) => Class::Reference { region: kind == 1 },
                kind @ 2..=4 if version >= 4 => Class::Reference { region: kind == 3 },
                kind => {
                    let what =
                        format!("a reference of kind {kind} in a datatype of version {version}");
                    return Err(Error::damaged(what));
                }
            },
            8 => read_enum(cursor, version, bits & 0xffff, size, depth, sparse)?,
            9 => {
                let base = Self::read(cursor, depth, sparse)?;
                match bits & 15 {
                    0 => Class::Vlen(base.into()),
                    1 => {
                        padding(bits >> 4 & 15, bits >> 8 & 15)?;
                        Class::VlenStr
                    }
                    kind => {
                        return Err(Error::damaged(format!(
                            "values of variable length of kind {kind}"
                        ))
                        .expected("0, sequences, or 1, text"));
                    }
                }
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
                Class::Array { base: Self::read(cursor, depth, sparse)?.into(), dims }
            }
            11 if bits != 1 => {
                return Err(Error::damaged("a complex number of an unknown kind"));
            }
            11 => Class::Complex(Self::read(cursor, depth, sparse)?.into()),
            other => {
                return Err(Error::damaged(format!("a datatype of the unknown class {other}"))
                    .expected("one of 0 to 11"));
            }
        };
        if size == 0 {
            return Err(Error::damaged("a datatype without a size"));
        }
        Ok(Self { size, class })
    }
}

/// Maximum number of fields of a record and names of an enum that are listed.
const MAX_NAMES: usize = 100;

/// Joins texts; instead of those after the first [`MAX_NAMES`], gives their number and a checksum,
/// which differs between lists that differ only there.
fn listed(texts: impl Iterator<Item = String>) -> String {
    let (mut list, mut more, mut sum) = (Vec::new(), 0, FNV_START);
    for text in texts {
        if list.len() < MAX_NAMES {
            list.push(text);
            continue;
        }
        more += 1;
        for byte in text.bytes().chain([0]) {
            sum = (sum ^ u32::from(byte)).wrapping_mul(FNV_PRIME);
        }
    }
    if more > 0 {
        list.push(format!("and {more} more with checksum {sum:08x}"));
    }
    list.join(", ")
}

/// The constants of FNV-1a with 32 bits.
const FNV_START: u32 = 0x811c_9dc5;
const FNV_PRIME: u32 = 0x0100_0193;

/// Returns a name, in quotes if it has characters that separate names in the description.
fn quoted(name: &Text) -> String {
    let text = name.to_lossy();
    let is_plain = |c: char| !c.is_whitespace() && !"()[]{},='\"\\".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.into_owned(),
        false => format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'")),
    }
}

/// Fails unless the bits of a number lie within its bytes.
fn inside(offset: u16, precision: u16, size: u64) -> Result<()> {
    match u64::from(offset) + u64::from(precision) <= size.saturating_mul(8) && precision > 0 {
        true => Ok(()),
        false => Err(Error::damaged(format!(
            "a number of {precision} bits from bit {offset} in {size} bytes"
        ))),
    }
}

/// Returns whether a number leaves more than half of its bits unused.
fn is_sparse(offset: u16, precision: u16, size: u64) -> bool {
    size > 1 && u64::from(offset) + u64::from(precision) < size.saturating_mul(4)
}

/// Fails unless sign, exponent and mantissa lie within a float's bits and don't overlap.
fn check_float(bits: u32, parts: [u8; 4], offset: u16, precision: u16) -> Result<()> {
    let [exponent, mantissa] = [[parts[0], parts[1]], [parts[2], parts[3]]].map(|[at, len]| {
        let at = u16::from(at);
        at..at + u16::from(len)
    });
    let sign = (bits >> 8 & 0xff) as u16;
    let all = offset.saturating_add(precision);
    let apart = exponent.end <= mantissa.start || mantissa.end <= exponent.start;
    let sound = [&exponent, &mantissa]
        .into_iter()
        .all(|part| !part.is_empty() && part.end <= all && !part.contains(&sign));
    match sound && apart && sign < all && bits >> 4 & 3 != 3 {
        true => Ok(()),
        false => Err(Error::damaged("a float whose parts overlap or exceed its bits")),
    }
}

/// Returns the padding of a text by its number; checks that its encoding is ASCII or UTF-8.
fn padding(number: u32, encoding: u32) -> Result<Padding> {
    match (number, encoding) {
        (0, 0 | 1) => Ok(Padding::Null),
        (1, 0 | 1) => Ok(Padding::NullPad),
        (2, 0 | 1) => Ok(Padding::Space),
        _ => Err(Error::damaged(format!(
            "text of padding {number} and encoding {encoding}, which HDF5 does not define"
        ))
        .expected("padding 0 to 2, encoding 0 or 1")),
    }
}

fn read_float(
    cursor: &mut Cursor<'_>,
    version: u8,
    bits: u32,
) -> hdf5_reader::error::Result<Class> {
    let _offset = cursor.read_u16_le()?;
    let precision = cursor.read_u16_le()?;
    let exponent_at = cursor.read_u8()?;
    let exponent = cursor.read_u8()?;
    let mantissa_at = cursor.read_u8()?;
    let mantissa = cursor.read_u8()?;
    let bias = cursor.read_u32_le()?;
    // The VAX byte order was added in version 3.
    let order = match (bits & 1, bits >> 6 & 1) {
        (1, 1) if version >= 3 => None,
        (1, _) => Some(ByteOrder::Big),
        _ => Some(ByteOrder::Little),
    };
    let format = FloatFormat {
        precision,
        exponent,
        mantissa,
        bias,
        sign_at: (bits >> 8) as u8,
        exponent_at,
        mantissa_at,
        implied: bits >> 4 & 3 == 2,
    };
    Ok(Class::Float { format, order })
}

fn read_compound(
    cursor: &mut Cursor<'_>,
    version: u8,
    count: u32,
    size: u64,
    depth: u32,
    sparse: &mut bool,
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
        let mut datatype = Datatype::read(cursor, depth, sparse)?;
        if !dims.is_empty() {
            let total = dims.iter().try_fold(datatype.size, |size, dim| size.checked_mul(*dim));
            let size = total.ok_or_else(|| Error::damaged("a field of a record is too large"))?;
            datatype = Datatype { size, class: Class::Array { base: datatype.into(), dims } };
        }
        if offset.checked_add(datatype.size).is_none_or(|end| end > size) {
            return Err(Error::damaged(format!("the field {name} is outside its record")));
        }
        members.push(Member { name, offset, datatype });
    }
    let mut taken: Vec<_> =
        members.iter().map(|one| (one.offset, one.offset + one.datatype.size)).collect();
    taken.sort_unstable();
    if taken.windows(2).any(|pair| pair[0].1 > pair[1].0) || taken.is_empty() {
        return Err(Error::damaged("a record without fields, or with fields that overlap"));
    }
    Ok(Class::Compound(members))
}

fn read_enum(
    cursor: &mut Cursor<'_>,
    version: u8,
    count: u32,
    whole: u64,
    depth: u32,
    sparse: &mut bool,
) -> Result<Class> {
    let base = Datatype::read(cursor, depth, sparse)?;
    if base.size != whole {
        return Err(Error::damaged(format!(
            "an enum of {whole} bytes of numbers of {}",
            base.size
        )));
    }
    let mut names = Vec::new();
    for _ in 0..count {
        let name = read_name(cursor, version < 3).map_err(from_reader)?;
        if name.is_empty() {
            return Err(Error::damaged("a value of an enum without a name"));
        }
        names.push(name);
    }
    let mut members = Vec::new();
    let size = usize::try_from(base.size).unwrap_or(usize::MAX);
    for name in names {
        members.push((name, cursor.read_bytes(size).map_err(from_reader)?.to_vec()));
    }
    Ok(Class::Enum { base: base.into(), members })
}

/// Reads a NUL-terminated name; if `padded`, with further NULs up to a multiple of eight bytes.
fn read_name(cursor: &mut Cursor<'_>, padded: bool) -> hdf5_reader::error::Result<Text> {
    let rest = cursor.peek_bytes(cursor.remaining() as usize)?;
    let len = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
    let name = text(&rest[..len]);
    let whole = if padded { (len + 8) & !7 } else { len + 1 };
    cursor.skip(whole)?;
    Ok(name)
}
