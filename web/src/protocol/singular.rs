//! Messages about the singular values of a matrix.

use serde::{Deserialize, Serialize};

use super::error::ErrorText;
use super::selection::MatrixSelection;

/// Requests from the page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum SingularRequest {
    /// Estimate what computing them takes.
    Offers(MatrixSelection),
    /// Compute all (true) or the largest; `None` stops it.
    Find(Option<(MatrixSelection, bool)>),
}

/// Replies from the worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum SingularReply {
    /// What can be computed; empty if the selection is not a matrix of real numbers.
    Offers(Vec<SingularOffer>),
    /// Progress, from 0 to 1.
    Progress(f64),
    /// The result so far, or the final one.
    Found(Box<SingularReport>),
    /// It ended, by completing or by being stopped.
    Ended,
    /// They can't be computed.
    Failed(ErrorText),
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
    /// The numbers.
    pub csv: String,
}
