use statelens_checkpoint::{Finding, FormatInfo};

use super::leaves::BundleLeaves;

/// The result of the reader of either version.
pub(super) type Contents = (BundleLeaves, FormatInfo, Vec<Finding>);

/// Returns the number of elements, or `None` if it overflows.
pub(super) fn numel(shape: &[u64]) -> Option<u64> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1u64, |numel, dim| numel.checked_mul(*dim))
}
