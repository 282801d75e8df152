//! Tensors: element type and location.

mod layout;
mod relocation;

use crate::{DType, Text, ValueId};

pub use layout::{
    Arithmetic, Chunk, Chunked, Chunks, CodePacking, CodeValues, Codes, Computed, Concat, Deferred,
    Dequantised, Groups, Layout, Locate, MAX_FIELDS, Offset, Packed, Packing, Part, Product,
    Rounding, Scales, Strided,
};
pub use relocation::Relocation;

/// An array of elements and the location of its bytes.
///
/// Its *logical bytes* are its elements in C order, little-endian, dense, as [`Tensor::dtype`]:
/// these are hashed, shown, compared and written.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// Element type for users of the tensor.
    pub dtype: DType,
    /// Element type in the file. Differs from `dtype` only if a cast was requested; elements are
    /// converted as they are read.
    pub stored: DType,
    /// Length of each dimension, in elements.
    pub shape: Vec<u64>,
    /// Location of the bytes.
    pub layout: Layout,
    /// Byte order of the elements in the file.
    pub byte_order: ByteOrder,
    /// Torch's lazy conjugation: values are the conjugates of the stored ones.
    pub conjugate: bool,
    /// Torch's lazy negation: values are the negatives of the stored ones.
    pub negate: bool,
    /// Id of the storage, if the format has one: tensors with the same id share memory.
    pub storage: Option<u32>,
    /// Torch's `requires_grad` flag.
    pub requires_grad: bool,
    /// The tensor's class in Python.
    pub class: TensorClass,
    /// Conversion of quantised integers to numbers.
    pub quantizer: Option<Quantizer>,
}

/// Byte order of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum ByteOrder {
    /// Least significant byte first.
    #[default]
    Little,
    /// Most significant byte first.
    Big,
}

/// The class of a tensor in Python.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TensorClass {
    /// `torch.Tensor`.
    #[default]
    Tensor,
    /// `torch.nn.Parameter`.
    Parameter,
    /// A subclass, by its dotted name.
    Other(Text),
}

/// How quantised integers represent numbers.
#[derive(Debug, Clone, PartialEq)]
pub enum Quantizer {
    /// One scale and zero point for all elements.
    PerTensor {
        /// Value of one step.
        scale: f64,
        /// The integer that represents zero.
        zero_point: i64,
    },
    /// One scale and zero point per index of an axis.
    PerChannel {
        /// The `scales` tensor.
        scales: ValueId,
        /// The `zero_points` tensor.
        zero_points: ValueId,
        /// The axis.
        axis: u64,
    },
}

impl Tensor {
    /// Creates a plain little-endian tensor.
    pub fn new(dtype: DType, shape: Vec<u64>, layout: Layout) -> Self {
        Self {
            stored: dtype.clone(),
            dtype,
            shape,
            layout,
            byte_order: ByteOrder::Little,
            conjugate: false,
            negate: false,
            storage: None,
            requires_grad: false,
            class: TensorClass::Tensor,
            quantizer: None,
        }
    }

    /// Returns the number of elements; `None` if it does not fit in 64 bits.
    pub fn numel(&self) -> Option<u64> {
        numel(&self.shape)
    }

    /// Returns the number of logical bytes; `None` if it does not fit in 64 bits, or is not a whole
    /// number of blocks.
    pub fn nbytes(&self) -> Option<u64> {
        self.dtype.bytes_of(self.numel()?)
    }

    /// Returns whether the logical bytes are exactly the bytes of one span of a file.
    pub fn is_verbatim(&self) -> bool {
        matches!(self.layout, Layout::Span(_))
            && self.dtype == self.stored
            && !self.conjugate
            && !self.negate
            && (self.byte_order == ByteOrder::Little || self.dtype.itemsize() == 1)
    }
}

/// Returns the number of elements of a shape. If any dimension is 0, so is the result, even if the
/// product of the others overflows.
pub fn numel(shape: &[u64]) -> Option<u64> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1u64, |product, dim| product.checked_mul(*dim))
}

/// Returns the strides, in elements, of a dense C-order array; `None` if they do not fit. In an array
/// without elements, strides that do not fit are 0.
pub fn contiguous_strides(shape: &[u64]) -> Option<Vec<i64>> {
    let mut strides = vec![0; shape.len()];
    let mut step = 1i64;
    for (stride, dim) in strides.iter_mut().zip(shape).rev() {
        *stride = step;
        let next = i64::try_from((*dim).max(1)).ok().and_then(|dim| step.checked_mul(dim));
        step = next.or(shape.contains(&0).then_some(0))?;
    }
    Some(strides)
}

/// Returns the strides, in elements, of a dense Fortran-order array; `None` if they do not fit.
pub fn fortran_strides(shape: &[u64]) -> Option<Vec<i64>> {
    let reversed: Vec<u64> = shape.iter().rev().copied().collect();
    let mut strides = contiguous_strides(&reversed)?;
    strides.reverse();
    Some(strides)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_overflowing_sizes() {
        assert_eq!(numel(&[u64::MAX, 2]), None);
        assert_eq!(numel(&[u64::MAX, 2, 0]), Some(0));
        assert_eq!(numel(&[]), Some(1));
        assert_eq!(contiguous_strides(&[2, 3, 4]), Some(vec![12, 4, 1]));
        assert_eq!(contiguous_strides(&[u64::MAX, 1]), None);
        // torch has the first, and refuses the others.
        assert_eq!(contiguous_strides(&[1 << 62, 2, 0]), Some(vec![2, 1, 1]));
        assert_eq!(contiguous_strides(&[0, 1 << 62, 2]), Some(vec![0, 2, 1]));
        assert_eq!(contiguous_strides(&[u64::MAX, 2, 0]), Some(vec![2, 1, 1]));
        assert_eq!(fortran_strides(&[2, 3, 4]), Some(vec![1, 2, 6]));
    }
}
