//! Element types and their encoding.

use statelens_checkpoint::DType;

use super::bytes::Put;

/// The element type of a dataset or attribute, as h5py writes numpy's types; little-endian.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Datatype {
    /// An integer of `size` bytes.
    Int {
        size: u32,
        /// Whether it is in two's complement.
        signed: bool,
    },
    F16,
    F32,
    F64,
    /// An enumeration of int8, `FALSE` = 0 and `TRUE` = 1: numpy's bool.
    Bool,
    /// A UTF-8 string of any length, stored in a global heap.
    Text,
    /// ASCII with this number of bytes, padded with zeros: numpy's `S`.
    FixedAscii(u32),
    /// This number of bytes without further meaning: numpy's `V`.
    Opaque(u32),
    Compound {
        /// Bytes in one record, padding included.
        size: u32,
        fields: Vec<CompoundField>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompoundField {
    pub name: String,
    pub offset: u32,
    /// The shape of an array in the field, of at most four dimensions; empty for a single value.
    pub dims: Vec<u32>,
    pub datatype: Datatype,
}

/// Maximum number of dimensions of an array in a record, in version 1 of the message.
const MAX_DIMENSIONS: usize = 4;

/// Maximum nesting of records; those of numpy programs are two or three deep.
const MAX_NESTING: u32 = 8;

impl Datatype {
    /// Returns h5py's type for a dtype; `bfloat16` becomes the int16 of its bits, as in the
    /// Cerebras library. `None` if HDF5 or h5py has no such type.
    pub fn of(dtype: &DType) -> Option<Self> {
        Self::within(dtype, 0)
    }

    fn within(dtype: &DType, nesting: u32) -> Option<Self> {
        let int = |size, signed| Some(Self::Int { size, signed });
        match dtype {
            DType::Bool => Some(Self::Bool),
            DType::U8 => int(1, false),
            DType::U16 => int(2, false),
            DType::U32 => int(4, false),
            DType::U64 => int(8, false),
            DType::I8 => int(1, true),
            DType::I16 => int(2, true),
            // An attribute of the dataset records the real dtype; fields have no attributes.
            DType::BF16 if nesting == 0 => int(2, true),
            DType::I32 => int(4, true),
            DType::I64 => int(8, true),
            DType::F16 => Some(Self::F16),
            DType::F32 => Some(Self::F32),
            DType::F64 => Some(Self::F64),
            DType::C64 => Some(Self::complex(Self::F32)),
            DType::C128 => Some(Self::complex(Self::F64)),
            DType::Numpy(numpy) => {
                let size = u32::try_from(numpy.itemsize).ok().filter(|size| *size > 0)?;
                if numpy.fields.is_empty() {
                    return match numpy.code.as_bytes().first() {
                        Some(b'S') => Some(Self::FixedAscii(size)),
                        Some(b'V') => Some(Self::Opaque(size)),
                        _ => None,
                    };
                }
                if nesting == MAX_NESTING {
                    return None;
                }
                let mut fields = Vec::new();
                for field in &numpy.fields {
                    if field.shape.len() > MAX_DIMENSIONS || field.name.contains('\0') {
                        return None;
                    }
                    let dims = field.shape.iter().map(|dim| u32::try_from(*dim).ok());
                    fields.push(CompoundField {
                        name: field.name.clone(),
                        offset: u32::try_from(field.offset).ok()?,
                        dims: dims.collect::<Option<_>>()?,
                        datatype: Self::within(&field.dtype, nesting + 1)?,
                    });
                }
                Some(Self::Compound { size, fields })
            }
            _ => None,
        }
    }

    fn complex(part: Self) -> Self {
        let size = part.size();
        let field = |name: &str, offset| CompoundField {
            name: name.into(),
            offset,
            dims: Vec::new(),
            datatype: part.clone(),
        };
        Self::Compound { size: 2 * size, fields: vec![field("r", 0), field("i", size)] }
    }

    pub fn size(&self) -> u32 {
        match self {
            Self::Bool => 1,
            Self::F16 => 2,
            Self::F32 => 4,
            Self::F64 => 8,
            Self::Text => 16,
            Self::Int { size, .. }
            | Self::FixedAscii(size)
            | Self::Opaque(size)
            | Self::Compound { size, .. } => *size,
        }
    }

    /// Appends the body of a datatype message, version 1.
    pub(super) fn encode_into(&self, out: &mut Vec<u8>) {
        let (class, bits) = match self {
            Self::Int { signed, .. } => (0, u32::from(*signed) << 3),
            // Mantissas are normalised with an implied leading bit; the sign is the last bit.
            Self::F16 => (1, 0x0f20),
            Self::F32 => (1, 0x1f20),
            Self::F64 => (1, 0x3f20),
            Self::FixedAscii(_) => (3, 1),
            Self::Opaque(_) => (5, 0),
            Self::Compound { fields, .. } => (6, fields.len() as u32 & 0xffff),
            Self::Bool => (8, 2),
            Self::Text => (9, 0x0101),
        };
        out.push(0x10 | class);
        out.extend_from_slice(&bits.to_le_bytes()[..3]);
        out.u32(self.size());
        match self {
            Self::Int { size, .. } => {
                out.u16(0);
                out.u16((*size * 8) as u16);
            }
            Self::F16 => float(out, 16, [10, 5, 0, 10], 15),
            Self::F32 => float(out, 32, [23, 8, 0, 23], 127),
            Self::F64 => float(out, 64, [52, 11, 0, 52], 1023),
            Self::FixedAscii(_) | Self::Opaque(_) => {}
            Self::Compound { fields, .. } => {
                for CompoundField { name, offset, dims, datatype } in fields {
                    out.name(name);
                    out.u32(*offset);
                    // A version-1 member has its own array shape: the number of dimensions, eleven
                    // unused bytes, four dimensions.
                    out.push(dims.len() as u8);
                    out.zeros(11);
                    dims.iter().for_each(|dim| out.u32(*dim));
                    out.zeros(4 * (MAX_DIMENSIONS - dims.len().min(MAX_DIMENSIONS)));
                    datatype.encode_into(out);
                }
            }
            Self::Bool => {
                Self::Int { size: 1, signed: true }.encode_into(out);
                out.name("FALSE");
                out.name("TRUE");
                out.extend([0, 1]);
            }
            Self::Text => Self::Int { size: 1, signed: false }.encode_into(out),
        }
    }
}

/// Appends precision, then exponent and mantissa (position and size each), then the exponent's
/// bias.
fn float(out: &mut Vec<u8>, precision: u16, parts: [u8; 4], bias: u32) {
    out.u16(0);
    out.u16(precision);
    out.extend(parts);
    out.u32(bias);
}
