//! What page and worker say about the singular values of a matrix that is looked at.

use serde::{Deserialize, Serialize};

use super::error::ErrorText;
use super::frame::MatrixSelection;

/// What the page asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum SingularRequest {
    /// What finding them takes.
    Offers(MatrixSelection),
    /// Find all, or the largest; or stop that.
    Find(Option<(MatrixSelection, bool)>),
}

/// What the worker answers about a matrix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum SingularReply {
    /// What can be found; nothing of what is not a matrix of real numbers.
    Offers(Vec<Offer>),
    /// How much of it is done, of 1.
    Going(f64),
    /// What was found so far, or in all.
    Found(Box<SingularReport>),
    /// It was ended: all is found, or it was stopped.
    Ended,
    /// They can't be found.
    Failed(ErrorText),
}

/// What can be found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// All of them, or the largest.
    pub all: bool,
    /// How many.
    pub count: u64,
    /// What it takes.
    pub text: String,
    /// About how many seconds.
    pub seconds: f64,
}

/// Singular values, as they are shown and saved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SingularReport {
    /// What they say about the matrix.
    pub facts: Vec<(String, String)>,
    /// They as a line.
    pub svg: String,
    /// They as numbers.
    pub csv: String,
}
