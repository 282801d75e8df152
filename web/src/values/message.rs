//! Messages about the values of tensors: of one or of all.

use serde::{Deserialize, Serialize};
use statelens_values::SummaryStatistics;
use statelens_values::weights::{Measured, Noticed};

/// Statistics of tensors by row.
pub type RowStatistics = Vec<(u32, SummaryStatistics)>;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TensorValues {
    pub row: u32,
    pub measured: Measured,
    /// Bytes read; 0 if the tensor was read with others.
    pub bytes: u64,
    /// Milliseconds spent.
    pub millis: f64,
}

/// Reads all tensors that were not read yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanRequest {}

/// The result of reading all tensors.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ScanReport {
    /// Statistics of tensors since the last message.
    pub rows: RowStatistics,
    /// Bytes read.
    pub bytes: u64,
    /// Bytes left to read if it was stopped.
    pub unread_bytes: u64,
    pub millis: f64,
    /// Tensors that can't be read or have no numbers: the row, and why.
    pub unread: Vec<(u32, String)>,
    /// Findings, the most severe first.
    pub findings: Vec<Noticed>,
    /// The problems that were searched for.
    pub checks: Vec<String>,
}
