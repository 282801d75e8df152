//! Which matrix of a tensor is looked at.

use serde::{Deserialize, Serialize};
use statelens_stats::Matrix;

/// Which matrix of a tensor is looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatrixSelection {
    /// The row of the tensor.
    pub row: u32,
    /// An index for each dimension before the last two.
    pub leading: Vec<u64>,
    /// Of one dimension: how many elements make a row.
    pub fold: Option<u64>,
}

impl MatrixSelection {
    /// The matrix, in a tensor of this shape.
    #[must_use]
    pub fn matrix(&self, shape: &[u64]) -> Option<Matrix> {
        let matrix = Matrix::of(shape, &self.leading)?;
        Some(self.fold.map_or(matrix, |columns| matrix.folded(columns)))
    }
}
