//! What the readers of both versions make of a checkpoint.

use statelens_checkpoint::{Finding, FormatInfo};

use super::leaves::BundleLeaves;

/// What a reader of either version comes to.
pub(super) type Contents = (BundleLeaves, FormatInfo, Vec<Finding>);

/// Number of elements, if it fits.
pub(super) fn numel(shape: &[u64]) -> Option<u64> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1u64, |numel, dim| numel.checked_mul(*dim))
}
