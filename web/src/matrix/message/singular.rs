//! Messages about the singular values of a matrix.

use serde::{Deserialize, Serialize};

use crate::protocol::selection::MatrixSelection;

/// Computes the singular values of a matrix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SingularRequest {
    pub selection: MatrixSelection,
    /// All singular values, or only the largest.
    pub all: bool,
}

/// A computation on offer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SingularOffer {
    /// All singular values, or only the largest.
    pub all: bool,
    /// The number of singular values.
    pub count: u64,
    /// What it takes, as text.
    pub text: String,
    /// Estimated seconds.
    pub seconds: f64,
}

/// Singular values, as shown and saved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SingularReport {
    /// What they show about the matrix: labels and values.
    pub facts: Vec<(String, String)>,
    /// A line chart.
    pub svg: String,
    pub csv: String,
}
