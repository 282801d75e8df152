//! What page and worker say about two tensors that are looked at more closely, and about tensors that
//! have another key on the other side.

use serde::{Deserialize, Serialize};

use super::error::ErrorText;
use super::looking::PackedOverview;
use super::weights::TensorValues;

/// How far looking at a pair is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Closely {
    /// It takes long, or has to be fetched: so many bytes.
    Unread(u64),
    /// Bytes of both, all of them, and what is known so far.
    Reading(u64, u64, Option<Box<CloseValues>>),
    /// All that there is to know.
    Read(Box<CloseValues>),
    /// They can't be subtracted, or read.
    Failed(ErrorText),
}

/// What two tensors are like beside each other.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CloseValues {
    /// Mean, deviation, norm of A, of B and of B − A.
    pub sides: [[Option<f64>; 3]; 3],
    /// How many values differ, of how many.
    pub differing: (u64, u64),
    /// NaN on both sides, in A only, in B only.
    pub nan: [u64; 3],
    /// The shape whose indices places are.
    pub shape: Vec<u64>,
    /// Over the same bins, of one width and by magnitude.
    pub outlines: [Outlines; 2],
    /// The values of B − A.
    pub differences: TensorValues,
    /// Where they differ: blocks of |B − A|.
    pub map: Option<PackedOverview>,
}

/// Edges of bins, and how many values of A and of B are in each.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Outlines {
    /// One more than bins.
    pub edges: Vec<f64>,
    /// Of A and of B.
    pub counts: [Vec<u64>; 2],
}

/// Tensors that have another key on the other side.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Renames {
    /// Old and new keys of all rows whose keys differ, those that were renamed before included.
    pub names: Vec<(String, String)>,
    /// How many were found by equal bytes, by equal bytes of several, by shape and order.
    pub counts: [u64; 3],
    /// How many of A and of B are left alone.
    pub alone: [u64; 2],
    /// What was found as a list, as `convert --rename-map` takes it.
    pub list: String,
}

/// How far looking for renamed tensors is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Renaming {
    /// Bytes that were hashed, and all of them.
    Now(u64, u64),
    /// What was found.
    Found(Box<Renames>),
    /// It could not go on.
    Failed(ErrorText),
}

/// Norms and deviations of A and of B, and the relative change, of a row of A.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RowMeasured {
    /// The row.
    pub row: u32,
    /// Norms of A and B, deviations of A and B.
    pub numbers: [f64; 4],
    /// The relative change.
    pub change: Option<f64>,
}
