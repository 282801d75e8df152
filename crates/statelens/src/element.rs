//! The Rust types that values can be read as.

use half::{bf16, f16};
use statelens_checkpoint::DType;

/// A type that the values of a tensor can be read as by [`Tensor::read`](crate::Tensor::read).
pub trait Element: Copy + private::Sealed {
    /// The dtype of this type.
    const DTYPE: DType;

    /// Converts the little-endian bytes of one element; their number is the size of the dtype.
    fn from_bytes(bytes: &[u8]) -> Self;
}

mod private {
    /// Seals `Element`, so that only the types in this module implement it.
    pub trait Sealed {}
}

macro_rules! elements {
    ($($type:ty: $dtype:ident),*) => {$(
        impl private::Sealed for $type {}

        impl Element for $type {
            const DTYPE: DType = DType::$dtype;

            fn from_bytes(bytes: &[u8]) -> Self {
                let mut whole = [0; size_of::<Self>()];
                let len = bytes.len().min(whole.len());
                whole[..len].copy_from_slice(&bytes[..len]);
                Self::from_le_bytes(whole)
            }
        }
    )*};
}

elements!(
    u8: U8, u16: U16, u32: U32, u64: U64, i8: I8, i16: I16, i32: I32, i64: I64, f16: F16,
    bf16: BF16, f32: F32, f64: F64
);

impl private::Sealed for bool {}

impl Element for bool {
    const DTYPE: DType = DType::Bool;

    fn from_bytes(bytes: &[u8]) -> Self {
        bytes.first().is_some_and(|byte| *byte != 0)
    }
}
