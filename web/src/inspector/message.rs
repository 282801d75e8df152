//! Messages about a row.

use serde::{Deserialize, Serialize};
use statelens_values::SummaryStatistics;

use crate::pieces::message::TensorPieces;
use crate::protocol::error::ErrorText;
use crate::quantised::message::{QuantisedDetails, ShownAs};
use crate::values;

/// The full description of a row.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RowDetails {
    pub row: u32,
    /// The path, as Python would index it.
    pub path: String,
    /// For an entry of an optimizer's state: the key of its parameter, and how that was determined.
    pub parameter: Option<(String, String)>,
    /// Python that reads it: library and code, the usual one first.
    pub code: Vec<(String, String)>,
    /// Facts, such as the type and where it is stored.
    pub facts: Vec<Fact>,
    /// The whole value, if the table truncates it.
    pub text: Option<String>,
    /// Its pieces, if it is stored in several.
    pub pieces: Option<TensorPieces>,
    /// How it is quantised.
    pub quantised: Option<QuantisedDetails>,
    /// Attributes, as stored in the file.
    pub attributes: Vec<(String, String)>,
    /// Statistics of a tensor in a summary, if it has them.
    pub statistics: Option<SummaryStatistics>,
    /// Statistics of its values, if they were read.
    pub values: Option<Box<values::message::TensorValues>>,
    /// The number of bytes to read for these, if they were not.
    pub unread: Option<u64>,
    /// True if those bytes are on a server.
    pub remote: bool,
    /// Whether [`ToWorker::Values`](crate::protocol::ToWorker::Values) can be requested.
    pub has_values: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    pub label: String,
    pub value: String,
    /// An aside, shown dimmed.
    pub note: String,
}

/// Values of a tensor, formatted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FormattedValues {
    pub row: u32,
    /// A slice in Python's notation, without the brackets; empty for the whole tensor.
    pub slice: String,
    /// The number of the first value, in C order.
    pub start: u64,
    /// The values, or why they can't be read.
    pub values: Result<Vec<String>, ErrorText>,
    /// The bits of the values in hexadecimal, the highest first.
    pub bits: Vec<String>,
    /// The byte of the file at which the tensor begins, and the bytes of an element, if the elements
    /// are stored one after the other.
    pub stored: Option<(u64, u64)>,
    /// The reading of the stored bytes, if it is not the usual one; it determines dtype and shape.
    pub shown: Option<ShownAs>,
    pub dtype: String,
    pub shape: Vec<u64>,
    /// Python that reads the slice: library and code, the usual one first; empty for the whole
    /// tensor.
    pub code: Vec<(String, String)>,
}

/// The values of a tensor along one dimension.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TensorLine {
    pub row: u32,
    /// The slice, in Python's notation, without the brackets.
    pub slice: String,
    /// The smallest and the largest finite value from each of these indices up to the next one; NaN
    /// without finite values. Or why they can't be read.
    pub points: Result<Vec<(u64, f64, f64)>, ErrorText>,
}
