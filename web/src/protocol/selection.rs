//! Selection of a matrix of a tensor.

use serde::{Deserialize, Serialize};

/// Selection of a matrix of a tensor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatrixSelection {
    /// The row of the tensor.
    pub row: u32,
    /// A slice in Python's notation, without the brackets, which leaves at most two dimensions.
    pub slice: String,
    /// For a tensor of one dimension: the number of elements per row.
    pub fold: Option<u64>,
}
