//! What page and worker say about a row.

use serde::{Deserialize, Serialize};

use super::error::ErrorText;
use super::weights;

/// Everything about a row.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Inspected {
    /// The row.
    pub row: u32,
    /// The path, as Python would index it.
    pub path: String,
    /// Of an entry of an optimizer's state: the key of its parameter, and how that is known.
    pub parameter: Option<(String, String)>,
    /// Python that reads it: library and code, the usual one first.
    pub code: Vec<(String, String)>,
    /// Facts: what it is and where it lies.
    pub facts: Vec<Fact>,
    /// The whole value, where it is text that the table cuts.
    pub text: Option<String>,
    /// Attributes as the file has them.
    pub attributes: Vec<(String, String)>,
    /// Statistics of a tensor in a summary, if it has them.
    pub statistics: Vec<Fact>,
    /// What its values are like, if they were read.
    pub values: Option<Box<weights::TensorValues>>,
    /// How many bytes would be read for that, if they were not.
    pub unread: Option<u64>,
    /// True if those are on a server.
    pub remote: bool,
    /// True if [`ToWorker::Values`](super::ToWorker::Values) can be asked.
    pub has_values: bool,
}

/// A labelled fact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    /// What it is.
    pub label: String,
    /// The value.
    pub value: String,
    /// An aside, shown dimmed.
    pub note: String,
}

/// Values of a tensor, formatted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FormattedValues {
    /// The row.
    pub row: u32,
    /// What of it, as Python has it between brackets; nothing of the whole.
    pub slice: String,
    /// The number of the first, in C order.
    pub start: u64,
    /// The values; or why they can't be read.
    pub values: Result<Vec<String>, ErrorText>,
    /// Python that reads the slice: library and code, the usual one first; nothing of the whole.
    pub code: Vec<(String, String)>,
}
