//! Element types.

use std::fmt;
use std::sync::Arc;

/// The type of one element of a tensor.
///
/// Variants are named as in torch; [`DType::Numpy`] is for the types that only numpy has (strings,
/// records, dates, long doubles).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the variants are torch's own names")]
pub enum DType {
    Bool,
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F16,
    BF16,
    F32,
    F64,
    /// Two `F16`: real, imaginary.
    C32,
    /// Two `BF16`.
    BC32,
    /// Two `F32`.
    C64,
    /// Two `F64`.
    C128,
    F8E4M3FN,
    F8E4M3FNUZ,
    F8E5M2,
    F8E5M2FNUZ,
    F8E8M0FNU,
    /// Two four-bit floats in a byte. As in torch, one such byte is one element.
    F4E2M1FNX2,
    Bits1x8,
    Bits2x4,
    Bits4x2,
    Bits8,
    Bits16,
    QInt8,
    QUInt8,
    QInt32,
    /// Two numbers in a byte of torch's storage. Its logical bytes have one byte per number.
    QUInt4x2,
    /// Four numbers in a byte of torch's storage. Its logical bytes have one byte per number.
    QUInt2x4,
    Numpy(Arc<NumpyType>),
    /// Elements that are quantised in blocks, as in GGUF.
    Blocks(&'static Block),
}

/// A quantised dtype: a run of the last dimension is stored as one block of bytes.
///
/// [`DType::itemsize`] is that of a whole block; a shape counts elements. All types are known at
/// compile time, so a tensor only holds a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Block {
    /// The format's name of the dtype: `Q4_0`.
    pub name: &'static str,
    /// Elements in one block.
    pub elements: u64,
    /// Bytes in one block.
    pub bytes: u64,
    /// Byte ranges that are reversed to change the byte order, `(offset, size)`, in order.
    pub words: &'static [(u64, u64)],
}

/// An element type that only numpy has.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NumpyType {
    /// numpy's `dtype.name`: `str96`, `bytes16`, `void96`, `datetime64[D]`, `float128`.
    pub name: String,
    /// numpy's `dtype.str` without the byte order: `U3`, `S2`, `V12`, `M8[D]`, `f16`.
    pub code: String,
    /// Bytes in one element, padding included.
    pub itemsize: u64,
    /// Byte ranges that are reversed to change the byte order, `(offset, size)`, in order.
    pub words: Vec<(u64, u64)>,
    /// The fields of a record; empty for all other types.
    pub fields: Vec<Field>,
}

/// One field of a numpy record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Field {
    /// Name of the field.
    pub name: String,
    /// NumPy's title, a second name; empty if it has no title.
    pub title: String,
    /// Bytes from the start of the record.
    pub offset: u64,
    /// Element type.
    pub dtype: DType,
    /// Shape of a sub-array; empty for a single element.
    pub shape: Vec<u64>,
}

/// One row per dtype: name, item size, word size.
const TABLE: [(DType, &str, u64, u64); 33] = [
    (DType::Bool, "bool", 1, 1),
    (DType::U8, "uint8", 1, 1),
    (DType::U16, "uint16", 2, 2),
    (DType::U32, "uint32", 4, 4),
    (DType::U64, "uint64", 8, 8),
    (DType::I8, "int8", 1, 1),
    (DType::I16, "int16", 2, 2),
    (DType::I32, "int32", 4, 4),
    (DType::I64, "int64", 8, 8),
    (DType::F16, "float16", 2, 2),
    (DType::BF16, "bfloat16", 2, 2),
    (DType::F32, "float32", 4, 4),
    (DType::F64, "float64", 8, 8),
    (DType::C32, "complex32", 4, 2),
    (DType::BC32, "bcomplex32", 4, 2),
    (DType::C64, "complex64", 8, 4),
    (DType::C128, "complex128", 16, 8),
    (DType::F8E4M3FN, "float8_e4m3fn", 1, 1),
    (DType::F8E4M3FNUZ, "float8_e4m3fnuz", 1, 1),
    (DType::F8E5M2, "float8_e5m2", 1, 1),
    (DType::F8E5M2FNUZ, "float8_e5m2fnuz", 1, 1),
    (DType::F8E8M0FNU, "float8_e8m0fnu", 1, 1),
    (DType::F4E2M1FNX2, "float4_e2m1fn_x2", 1, 1),
    (DType::Bits1x8, "bits1x8", 1, 1),
    (DType::Bits2x4, "bits2x4", 1, 1),
    (DType::Bits4x2, "bits4x2", 1, 1),
    (DType::Bits8, "bits8", 1, 1),
    (DType::Bits16, "bits16", 2, 2),
    (DType::QInt8, "qint8", 1, 1),
    (DType::QUInt8, "quint8", 1, 1),
    (DType::QInt32, "qint32", 4, 4),
    (DType::QUInt4x2, "quint4x2", 1, 1),
    (DType::QUInt2x4, "quint2x4", 1, 1),
];

impl DType {
    /// Returns the dtype that torch calls `name`, without `torch.`; not the numpy-only ones.
    pub fn from_torch_name(name: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.1 == name).map(|row| row.0.clone())
    }

    /// Returns the dtype that `ml_dtypes`, which extends numpy for JAX and TensorFlow, calls
    /// `name`, for names that torch doesn't have. Each element takes a byte: unsigned integers are
    /// `uint8`, all others opaque numpy bytes under that name.
    pub fn from_ml_dtypes_name(name: &str) -> Option<Self> {
        const OTHERS: [&str; 9] = [
            "int1",
            "int2",
            "int4",
            "float4_e2m1fn",
            "float6_e2m3fn",
            "float6_e3m2fn",
            "float8_e3m4",
            "float8_e4m3",
            "float8_e4m3b11fnuz",
        ];
        match name {
            "uint1" | "uint2" | "uint4" => Some(Self::U8),
            name => OTHERS.contains(&name).then(|| Self::bytes_named(name, 1)),
        }
    }

    /// Returns a dtype of opaque elements, of which only the name and size are known.
    pub fn bytes_named(name: &str, itemsize: u64) -> Self {
        Self::Numpy(Arc::new(NumpyType {
            name: name.into(),
            code: format!("V{itemsize}"),
            itemsize,
            words: Vec::new(),
            fields: Vec::new(),
        }))
    }

    /// Returns torch's name without `torch.`, or numpy's for the types that torch doesn't have.
    pub fn name(&self) -> &str {
        match self {
            Self::Numpy(numpy) => &numpy.name,
            Self::Blocks(block) => block.name,
            _ => self.row().map_or("", |row| row.1),
        }
    }

    /// Returns the bytes of one element, or of one block of elements.
    pub fn itemsize(&self) -> u64 {
        match self {
            Self::Numpy(numpy) => numpy.itemsize,
            Self::Blocks(block) => block.bytes,
            _ => self.row().map_or(1, |row| row.2),
        }
    }

    /// Returns the bytes of the units that a byte-order change reverses: the component of a complex
    /// number, else the element. Numpy-only types have [`NumpyType::words`] instead.
    pub fn word(&self) -> u64 {
        match self {
            Self::Numpy(_) | Self::Blocks(_) => 1,
            _ => self.row().map_or(1, |row| row.3),
        }
    }

    /// Returns the bytes of `numel` elements; `None` if that does not fit in 64 bits, or is not a
    /// whole number of blocks.
    pub fn bytes_of(&self, numel: u64) -> Option<u64> {
        match self {
            Self::Blocks(block) => match numel.checked_rem(block.elements)? {
                0 => (numel / block.elements).checked_mul(block.bytes),
                _ => None,
            },
            _ => numel.checked_mul(self.itemsize()),
        }
    }

    /// Returns whether elements of both types are equal once their bytes are little-endian. Unlike
    /// `==` this ignores [`NumpyType::words`], which depend on a file's byte order, and the order
    /// in which fields are listed.
    pub fn is_same(&self, other: &Self) -> bool {
        let (Self::Numpy(one), Self::Numpy(other)) = (self, other) else { return self == other };
        fn sorted(numpy: &NumpyType) -> Vec<&Field> {
            let mut fields: Vec<&Field> = numpy.fields.iter().collect();
            crate::order::by_key(&mut fields, |field| field.offset);
            fields
        }
        (&one.name, &one.code, one.itemsize) == (&other.name, &other.code, other.itemsize)
            && one.fields.len() == other.fields.len()
            && sorted(one).into_iter().zip(sorted(other)).all(|(one, other)| {
                (&one.name, &one.title) == (&other.name, &other.title)
                    && (one.offset, &one.shape) == (other.offset, &other.shape)
                    && one.dtype.is_same(&other.dtype)
            })
    }

    /// Returns whether the elements are records in which a field has a title.
    pub fn has_titles(&self) -> bool {
        let mut open = vec![self];
        while let Some(dtype) = open.pop() {
            let Self::Numpy(numpy) = dtype else { continue };
            if numpy.fields.iter().any(|field| !field.title.is_empty()) {
                return true;
            }
            open.extend(numpy.fields.iter().map(|field| &field.dtype));
        }
        false
    }

    /// Returns whether the elements are real floating-point numbers.
    pub fn is_float(&self) -> bool {
        use DType::*;
        matches!(
            self,
            F16 | BF16
                | F32
                | F64
                | F8E4M3FN
                | F8E4M3FNUZ
                | F8E5M2
                | F8E5M2FNUZ
                | F8E8M0FNU
                | F4E2M1FNX2
        )
    }

    /// Returns whether the elements are complex floating-point numbers.
    pub fn is_complex(&self) -> bool {
        matches!(self, Self::C32 | Self::BC32 | Self::C64 | Self::C128)
    }

    /// Returns whether the elements are plain integers, neither bool nor quantised.
    pub fn is_int(&self) -> bool {
        use DType::*;
        matches!(self, U8 | U16 | U32 | U64 | I8 | I16 | I32 | I64)
    }

    fn row(&self) -> Option<&'static (DType, &'static str, u64, u64)> {
        // Comparing only the discriminant is much quicker, and rows differ in nothing else.
        let variant = std::mem::discriminant(self);
        TABLE.iter().find(|row| std::mem::discriminant(&row.0) == variant)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ByteOrder;

    #[test]
    fn records_compare_equal_in_any_byte_order() {
        let field = |name: &str, offset, order| {
            let dtype = DType::F32;
            let title = String::new();
            (Field { name: name.into(), title, offset, dtype, shape: Vec::new() }, order)
        };
        let (big, little) = (ByteOrder::Big, ByteOrder::Little);
        let record = |fields| DType::record(8, fields).unwrap();
        let one = record(vec![field("a", 0, big), field("b", 4, little)]);
        let other = record(vec![field("b", 4, little), field("a", 0, little)]);
        assert_ne!(one, other);
        assert!(one.is_same(&other));
        let renamed = record(vec![field("a", 0, big), field("c", 4, little)]);
        assert!(!one.is_same(&renamed));
        assert!(DType::F32.is_same(&DType::F32) && !DType::F32.is_same(&DType::F64));
    }

    #[test]
    fn names_are_unique_and_parse_back() {
        for (dtype, name, itemsize, word) in &TABLE {
            assert_eq!(DType::from_torch_name(name).as_ref(), Some(dtype));
            assert_eq!((dtype.name(), dtype.itemsize(), dtype.word()), (*name, *itemsize, *word));
        }
        assert_eq!(DType::from_torch_name("float7"), None);
    }
}
