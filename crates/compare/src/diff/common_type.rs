//! Selects the numeric type in which two tensors are compared.

use statelens_checkpoint::DType;
use statelens_stats::{Equality, Numbers};

/// The types that elements are compared as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CommonType {
    /// Both sides as 32-bit floats, which represent all smaller ones exactly.
    F32,
    F64,
    C64,
    C128,
    /// Each side in its own dtype: integers and bools, compared exactly.
    Ints(DType, DType),
    /// Bytes that are not numeric; elements of this size.
    Raw(usize),
}

/// Returns the common type of two dtypes, and the dtype to which either side is converted; `None`
/// if they can't be compared.
pub(super) fn common_type(left: &DType, right: &DType) -> Option<(CommonType, DType, DType)> {
    let both = |common, dtype: DType| Some((common, dtype.clone(), dtype));
    if is_int(left) && is_int(right) {
        return Some((CommonType::Ints(left.clone(), right.clone()), left.clone(), right.clone()));
    }
    if is_float(left) && is_float(right) && *left != DType::F64 && *right != DType::F64 {
        return both(CommonType::F32, DType::F32);
    }
    if (is_float(left) || is_int(left)) && (is_float(right) || is_int(right)) {
        return both(CommonType::F64, DType::F64);
    }
    if left.is_complex() && right.is_complex() {
        return match *left == DType::C128 || *right == DType::C128 {
            true => both(CommonType::C128, DType::C128),
            false => both(CommonType::C64, DType::C64),
        };
    }
    let size = usize::try_from(left.itemsize().max(1)).ok()?;
    left.is_same(right).then(|| (CommonType::Raw(size), left.clone(), right.clone()))
}

/// Returns the coarser of two float dtypes: the one with fewer mantissa bits, or with fewer
/// exponent bits if those are equal. `None` if neither is coarser.
pub(super) fn coarser<'a>(left: &'a DType, right: &'a DType) -> Option<&'a DType> {
    let (of_left, of_right) = (precision(left)?, precision(right)?);
    let alike = left.is_complex() == right.is_complex();
    (alike && of_left != of_right).then_some(if of_left < of_right { left } else { right })
}

/// Returns the number of stored mantissa bits and of exponent bits.
fn precision(dtype: &DType) -> Option<(u8, u8)> {
    Some(match dtype {
        DType::F64 | DType::C128 => (52, 11),
        DType::F32 | DType::C64 => (23, 8),
        DType::F16 | DType::C32 => (10, 5),
        DType::BF16 | DType::BC32 => (7, 8),
        DType::F8E4M3FN => (3, 4),
        DType::F8E4M3FNUZ => (3, 4),
        DType::F8E5M2 => (2, 5),
        DType::F8E5M2FNUZ => (2, 5),
        DType::F8E8M0FNU => (0, 8),
        _ => return None,
    })
}

fn is_int(dtype: &DType) -> bool {
    dtype.is_int() || *dtype == DType::Bool
}

/// Returns whether an element is one float.
fn is_float(dtype: &DType) -> bool {
    dtype.is_float() && *dtype != DType::F4E2M1FNX2
}

impl CommonType {
    /// Returns whether the elements are numbers, so that errors can be computed.
    pub(super) fn is_numeric(&self) -> bool {
        !matches!(self, Self::Raw(_))
    }

    /// Compares complete elements; both slices have the same number of them.
    pub(super) fn compare(
        &self,
        left: &[u8],
        right: &[u8],
        equality: Equality,
        numbers: &mut Numbers,
    ) {
        match self {
            Self::F32 => numbers.compare_f32(left, right, equality),
            Self::F64 => numbers.compare_f64(left, right, equality),
            Self::C64 => {
                let parts = |bytes: &[u8; 8]| {
                    let [a, b, c, d, e, f, g, h] = *bytes;
                    let part = |bytes| f64::from(f32::from_le_bytes(bytes));
                    (part([a, b, c, d]), part([e, f, g, h]))
                };
                for (l, r) in left.as_chunks().0.iter().zip(right.as_chunks().0) {
                    numbers.complex(parts(l), parts(r), equality);
                }
            }
            Self::C128 => {
                let parts = |bytes: &[u8; 16]| {
                    let (re, im) = bytes.as_chunks::<8>().0.split_at(1);
                    let part =
                        |bytes: &[[u8; 8]]| bytes.first().map_or(0.0, |x| f64::from_le_bytes(*x));
                    (part(re), part(im))
                };
                for (l, r) in left.as_chunks().0.iter().zip(right.as_chunks().0) {
                    numbers.complex(parts(l), parts(r), equality);
                }
            }
            Self::Ints(of_left, of_right) => {
                let size = |dtype: &DType| usize::try_from(dtype.itemsize().max(1)).unwrap_or(1);
                let left = left.chunks_exact(size(of_left));
                let right = right.chunks_exact(size(of_right));
                for (l, r) in left.zip(right) {
                    numbers.integer(integer(of_left, l), integer(of_right, r), equality);
                }
            }
            Self::Raw(size) => {
                for (l, r) in left.chunks_exact(*size).zip(right.chunks_exact(*size)) {
                    numbers.raw(l == r);
                }
            }
        }
    }
}

/// Returns whether both dtypes are integers or bools, which are compared exactly.
pub(super) fn are_ints(left: &DType, right: &DType) -> bool {
    is_int(left) && is_int(right)
}

/// Decodes an integer or bool; `bytes` must be complete.
pub(super) fn integer(dtype: &DType, bytes: &[u8]) -> i128 {
    let mut wide = [0; 8];
    for (to, from) in wide.iter_mut().zip(bytes) {
        *to = *from;
    }
    let value = u64::from_le_bytes(wide);
    match dtype {
        DType::Bool => i128::from(value != 0),
        DType::I8 => i128::from(value as i8),
        DType::I16 => i128::from(value as i16),
        DType::I32 => i128::from(value as i32),
        DType::I64 => i128::from(value as i64),
        _ => i128::from(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_the_precision_of_each_dtype() {
        // Sources as in `statelens-tensor`, `cast/small.rs`.
        for (dtype, mantissa, exponent) in [
            (DType::F8E4M3FN, 3, 4),
            (DType::F8E4M3FNUZ, 3, 4),
            (DType::F8E5M2, 2, 5),
            (DType::F8E5M2FNUZ, 2, 5),
            (DType::F8E8M0FNU, 0, 8),
            (DType::F16, 10, 5),
            (DType::BF16, 7, 8),
        ] {
            assert_eq!(precision(&dtype), Some((mantissa, exponent)), "{dtype}");
        }
        // Each has numbers that the other lacks.
        assert_eq!(coarser(&DType::F8E4M3FN, &DType::F8E4M3FNUZ), None);
        assert_eq!(coarser(&DType::F8E5M2, &DType::F8E5M2FNUZ), None);
        assert_eq!(coarser(&DType::F8E5M2, &DType::F8E4M3FN), Some(&DType::F8E5M2));
    }
}
