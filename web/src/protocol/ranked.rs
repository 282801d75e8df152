//! What page and worker say about the rows of a matrix by norm, or the kernels of a convolution.

use serde::{Deserialize, Serialize};

use super::error::ErrorText;
use super::frame::MatrixSelection;

/// What the page asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankedRequest {
    /// The matrix.
    pub frame: MatrixSelection,
    /// Rather the kernels of its tensor: the last two dimensions together.
    pub kernels: bool,
    /// The first of those that are shown, by rank, or by number.
    pub from: u64,
    /// In the order that they have, not by norm.
    pub in_order: bool,
}

/// What the worker answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum RankedReply {
    /// Bytes that were read, and all of them.
    Going(u64, u64),
    /// What was found.
    Found(Box<Ranked>),
    /// It can't be.
    Failed(ErrorText),
    /// It was stopped.
    Ended,
}

/// Rows by norm.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Ranked {
    /// Whether they are kernels, and in order.
    pub kernels: bool,
    /// In the order that they have.
    pub in_order: bool,
    /// How many there are.
    pub count: u64,
    /// Those that are all zero, and those equal to one before.
    pub zero: u64,
    /// Equal to one before, bit for bit.
    pub copied: u64,
    /// The norm in the middle.
    pub median: f64,
    /// Number, norm, largest magnitude: those of largest norm; of kernels, those that are shown.
    pub largest: Vec<(u64, f64, f64)>,
    /// Those of smallest norm.
    pub smallest: Vec<(u64, f64, f64)>,
    /// The rank, or number, of the first kernel that is shown.
    pub from: u64,
    /// Rows and columns of a kernel.
    pub size: (u64, u64),
    /// The values of the kernels that are shown, one after the other.
    pub values: Vec<f64>,
}
