//! Messages about ranking the rows of a matrix, or the kernels of a convolution, by norm.

use serde::{Deserialize, Serialize};

use crate::protocol::selection::MatrixSelection;

/// A request from the page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankedRequest {
    pub selection: MatrixSelection,
    /// Rank the kernels of its tensor instead, each of which is the last two dimensions.
    pub kernels: bool,
    /// The first kernel to return, by rank, or by number if `in_order`.
    pub from: u64,
    /// In stored order, not by norm.
    pub in_order: bool,
}

/// Rows ranked by norm.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NormRanking {
    pub kernels: bool,
    /// Whether they are in stored order.
    pub in_order: bool,
    /// The number of rows.
    pub count: u64,
    /// Rows that are all zero.
    pub zero: u64,
    /// Rows that equal an earlier one bit for bit.
    pub copied: u64,
    /// The median norm.
    pub median: f64,
    /// Number, norm and largest magnitude of the rows with the largest norm; for kernels, of those
    /// that are shown.
    pub largest: Vec<(u64, f64, f64)>,
    /// The same of the rows with the smallest norm.
    pub smallest: Vec<(u64, f64, f64)>,
    /// The rank, or number, of the first kernel shown.
    pub from: u64,
    /// Rows and columns of a kernel.
    pub size: (u64, u64),
    /// The values of the kernels shown, one after the other.
    pub values: Vec<f64>,
}
