//! Tensors that are stored as small codes with scales.

use std::sync::Arc;

use crate::{DType, Layout, Tensor};

/// Real numbers that are computed from small codes as they are read. The tensor with this layout is
/// little-endian and stored as float32.
///
/// Codes are a stack of matrices of [`Dequantised::shape`]. A number is the value of its code, times
/// the scale of the group in which the code is:
///
/// - `value * scale`
/// - `(value - zero) * scale` with [`Offset::Zeros`]
/// - `value * scale + bias` with [`Offset::Biases`] and [`Offset::Constant`]
///
/// in 32-bit floats, rounded after each operation, then times [`Dequantised::factor`], then rounded
/// to [`Dequantised::rounding`].
#[derive(Debug, Clone, PartialEq)]
pub struct Dequantised {
    /// The codes.
    pub codes: Codes,
    /// Matrices, rows and columns of the codes as they are stored.
    pub shape: [u64; 3],
    /// Whether the rows of the codes are the columns of the tensor.
    pub swapped: bool,
    /// The values of the codes.
    pub values: CodeValues,
    /// The scales, one for each group of rows and columns, in the order of the codes.
    pub scales: Scales,
    /// The numbers that are subtracted or added.
    pub offset: Offset,
    /// The groups of rows, and of columns.
    pub groups: [Groups; 2],
    /// A number by which all others are multiplied.
    pub factor: Option<f32>,
    /// The dtype to which the result is rounded: `F16` or `BF16`.
    pub rounding: Option<DType>,
}

/// Packed small unsigned integers.
#[derive(Debug, Clone, PartialEq)]
pub struct Codes {
    /// The tensor that holds them.
    pub tensor: Tensor,
    /// Their places in it.
    pub packing: CodePacking,
}

/// The places of codes in the elements of a tensor. Each row, or each column, begins with a new
/// element of the tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodePacking {
    /// Each code is an element of one byte.
    Bytes,
    /// The codes of a row follow each other, the lowest bits first: at most 8 bits each.
    AlongRow(u32),
    /// The codes of a column follow each other in words of 32 bits: at most 8 bits each.
    AlongColumn(u32),
    /// Eight codes of a row in a word of 32 bits, lowest first: columns 0, 2, 4, 6, 1, 3, 5, 7.
    Interleaved,
    /// Two codes of a row in a byte, the first in the high half.
    HighFirst,
    /// Codes of several matrices in a byte or in a word of 16 bits: fields of these widths, the lowest
    /// bits first.
    /// Matrix `m` is field `m % n` of the stored matrix `m / n`, for `n` fields. The rest are 0.
    Fields([u8; MAX_FIELDS]),
}

/// The most fields in a word of 16 bits.
pub const MAX_FIELDS: usize = 16;

impl CodePacking {
    /// Returns the number of codes that its bits can hold.
    pub fn codes(self) -> u64 {
        match self {
            Self::Bytes => 256,
            Self::AlongRow(bits) | Self::AlongColumn(bits) => 1 << bits.min(8),
            Self::Interleaved | Self::HighFirst => 16,
            Self::Fields(widths) => 1 << widths.iter().max().copied().unwrap_or(0).min(8),
        }
    }
}

/// The values of codes.
#[derive(Debug, Clone, PartialEq)]
pub enum CodeValues {
    /// The code minus this number.
    Minus(i32),
    /// The code is the byte of this dtype.
    As(DType),
    /// The entry of a table, in the order of codes. Codes beyond its end are an error.
    Table(Arc<[f32]>),
    /// The same, for a table of at most 256 numbers that is stored.
    Stored(Tensor),
}

/// The scales of groups of codes.
#[derive(Debug, Clone, PartialEq)]
pub struct Scales {
    /// The tensor: floats of any dtype, or bytes.
    pub tensor: Tensor,
    /// Whether the bytes are exponents: 2 to the power of the byte minus 127.
    pub exponents: bool,
    /// One number by which each scale is divided.
    pub divisor: Option<Tensor>,
}

/// The number subtracted from the value of a code, or added to its product with the scale.
#[derive(Debug, Clone, PartialEq)]
pub enum Offset {
    /// Nothing.
    None,
    /// A number for each group, subtracted before the product.
    Zeros(Codes, CodeValues),
    /// A number for each group, added to the product.
    Biases(Tensor),
    /// The same number everywhere, added to the product.
    Constant(f32),
}

/// How rows, or columns, are divided into groups.
#[derive(Debug, Clone, PartialEq)]
pub enum Groups {
    /// Groups of this many; the last one may be smaller.
    Every(u64),
    /// The group of each, and the number of groups.
    Listed(Tensor, u64),
}

impl Groups {
    /// Returns the number of groups of `len` rows or columns.
    pub fn count(&self, len: u64) -> u64 {
        match self {
            Self::Every(each) => len.div_ceil((*each).max(1)),
            Self::Listed(_, count) => *count,
        }
    }
}

impl Dequantised {
    /// Iterates over the tensors from which the numbers are computed.
    pub fn parts(&self) -> impl Iterator<Item = &Tensor> {
        let values = match &self.values {
            CodeValues::Stored(tensor) => Some(tensor),
            _ => None,
        };
        let offset = match &self.offset {
            Offset::Zeros(codes, _) => Some(&codes.tensor),
            Offset::Biases(tensor) => Some(tensor),
            Offset::None | Offset::Constant(_) => None,
        };
        let listed = self.groups.iter().filter_map(|groups| match groups {
            Groups::Listed(tensor, _) => Some(tensor),
            Groups::Every(_) => None,
        });
        [&self.codes.tensor, &self.scales.tensor]
            .into_iter()
            .chain(self.scales.divisor.as_ref())
            .chain(values)
            .chain(offset)
            .chain(listed)
    }

    /// Iterates over the layouts of the parts.
    pub fn layouts(&self) -> impl Iterator<Item = &Layout> {
        self.parts().map(|part| &part.layout)
    }

    /// Returns a copy with other tensors as its parts.
    pub fn with_parts(&self, part: impl Fn(&Tensor) -> Tensor) -> Self {
        let codes = |codes: &Codes| Codes { tensor: part(&codes.tensor), ..codes.clone() };
        Self {
            codes: codes(&self.codes),
            scales: Scales {
                tensor: part(&self.scales.tensor),
                divisor: self.scales.divisor.as_ref().map(&part),
                ..self.scales.clone()
            },
            values: match &self.values {
                CodeValues::Stored(tensor) => CodeValues::Stored(part(tensor)),
                other => other.clone(),
            },
            offset: match &self.offset {
                Offset::Zeros(zeros, values) => Offset::Zeros(codes(zeros), values.clone()),
                Offset::Biases(tensor) => Offset::Biases(part(tensor)),
                other => other.clone(),
            },
            groups: self.groups.clone().map(|groups| match groups {
                Groups::Listed(tensor, count) => Groups::Listed(part(&tensor), count),
                every => every,
            }),
            ..self.clone()
        }
    }
}
