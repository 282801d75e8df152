//! Messages about a close comparison of two tensors, and about finding renamed tensors.

use serde::{Deserialize, Serialize};
use statelens_compare::diff::Outlines;
use statelens_values::Statistics;
use statelens_values::weights::Measured;

use crate::matrix::message::PackedOverview;

/// Compares a row of the first checkpoint closely with one of the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorDiffRequest {
    pub pair: (u32, u32),
    /// Otherwise this stops at once if reading takes long, or has to be fetched.
    pub on_request: bool,
}

/// Values of two tensors side by side.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TensorDiff {
    /// Statistics of A and of B.
    pub sides: [Statistics; 2],
    /// NaN on both sides, in A only, in B only.
    pub nan: [u64; 3],
    /// The shape that positions index into.
    pub shape: Vec<u64>,
    /// Histograms of both over the same bins: of equal width, and by magnitude.
    pub outlines: [Outlines; 2],
    /// The values of B − A.
    pub differences: Measured,
    /// Where they differ: blocks of |B − A|.
    pub map: Option<PackedOverview>,
}

/// Tensors whose key is different in the second checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Renames {
    /// Old and new keys of all rows whose keys differ, including those that the page's edits
    /// already rename.
    pub names: Vec<(String, String)>,
    /// Pairs found by equal bytes, by equal bytes that several tensors share, and by shape and
    /// order.
    pub counts: [u64; 3],
    /// Tensors of A and of B that remain without a partner.
    pub alone: [u64; 2],
    /// The pairs found, as a list for `convert --rename-map`.
    pub list: String,
}
