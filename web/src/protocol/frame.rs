//! Which matrix of a tensor is looked at.

use serde::{Deserialize, Serialize};

/// Which matrix of a tensor is looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatrixSelection {
    /// The row of the tensor.
    pub row: u32,
    /// What of it, as Python has it between brackets: at most two dimensions of it are left.
    pub slice: String,
    /// Of one dimension: how many elements make a row.
    pub fold: Option<u64>,
}
