//! Types that values are read as.

use half::{bf16, f16};
use statelens_checkpoint::DType;

/// A type that the values of a tensor are read as, by [`Tensor::read`](crate::Tensor::read).
pub trait Element: Copy + private::Sealed {
    /// The dtype whose elements it is.
    const DTYPE: DType;

    /// One element of its little-endian bytes; there are as many as the dtype has.
    fn from_bytes(bytes: &[u8]) -> Self;
}

mod private {
    /// Keeps the trait to types whose bytes are known here.
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
