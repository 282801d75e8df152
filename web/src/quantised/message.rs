//! Messages about quantised weights.

use serde::{Deserialize, Serialize};

/// How a weight is stored.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct QuantisedDetails {
    /// The key under which its numbers are shown.
    pub weight: String,
    /// The scheme for display: `GPTQ, 4 bits`.
    pub scheme: String,
    /// The dtype of its numbers, by torch's name; empty if they are indices into a codebook.
    pub dtype: String,
    /// The tensors that it is stored as, the codes first.
    pub parts: Vec<StoredPart>,
    /// Settings inferred from shapes, because the config lacks them.
    pub inferred: Vec<String>,
    /// Why its numbers are not known; empty if they are.
    pub refused: String,
}

/// A tensor that a quantised weight is stored as.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredPart {
    pub key: String,
    pub dtype: String,
    pub shape: Vec<u64>,
    pub bytes: u64,
}

/// Another reading of stored bytes: a dtype of the same width or integers of four bits, and a shape.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownAs {
    /// The dtype, as `show --as` takes it.
    pub dtype: String,
    /// The shape, as numbers with commas; empty for the usual one.
    pub shape: String,
}
