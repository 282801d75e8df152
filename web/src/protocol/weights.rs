//! What page and worker say about the values of tensors: of one that is looked at, and of all.

use serde::{Deserialize, Serialize};

use super::conversion::Running;
use super::error::ErrorText;
use super::finding::Severity;

/// What the page asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum WeightsRequest {
    /// Read all tensors that were not read yet, or stop that: what was read is kept.
    Scan(bool),
    /// Read one, or stop that.
    Read(Option<u32>),
    /// Read some of one, to tell how long all of it takes.
    Rate(u32),
}

/// What the worker answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum WeightsReply {
    /// All tensors are being read; what was found since this was told before.
    Scanning(Running, Vec<RowValues>),
    /// They were, or it was stopped, or could not go on.
    Scanned(Result<Box<Scanned>, ErrorText>),
    /// One is being read: bytes, all of them, and what its values are like so far.
    Reading(u64, u64, Option<Box<TensorValues>>),
    /// It was read, or can't be.
    Read(Result<Box<TensorValues>, ErrorText>),
    /// Bytes that are read in a millisecond.
    Rate(f64),
}

/// What the table shows of a tensor's values.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RowValues {
    /// The row.
    pub row: u32,
    /// How many there are.
    pub count: u64,
    /// Those that are no number.
    pub nan: u64,
    /// Those that are infinite.
    pub infinite: u64,
    /// Those that are zero.
    pub zeros: u64,
    /// The least and the largest finite one.
    pub min: Option<f64>,
    /// The largest.
    pub max: Option<f64>,
    /// The mean.
    pub mean: Option<f64>,
    /// The standard deviation.
    pub std: Option<f64>,
    /// The largest magnitude.
    pub abs_max: Option<f64>,
}

/// All that is known of a tensor's values.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TensorValues {
    /// What the table shows.
    pub short: RowValues,
    /// The mean magnitude.
    pub abs_mean: Option<f64>,
    /// The number of the largest magnitude, of the first NaN, of the first infinity.
    pub places: [Option<u64>; 3],
    /// What 1 %, 25 %, 50 %, 75 % and 99 % lie below.
    pub quantiles: Option<[f64; 5]>,
    /// True if those are exact, and not within 1/256.
    pub exact: bool,
    /// How many lie more than six deviations from the mean.
    pub beyond: u64,
    /// True if all are whole numbers.
    pub whole: bool,
    /// In bins of one width.
    pub linear: Bins,
    /// In bins by magnitude, to both sides of zero.
    pub log: Bins,
    /// Bytes that were read, and how long that took; 0 if it was read with others.
    pub bytes: u64,
    /// Milliseconds.
    pub millis: f64,
}

/// A histogram.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Bins {
    /// Their edges, one more than bins.
    pub edges: Vec<f64>,
    /// How many values are in each.
    pub counts: Vec<u64>,
}

/// What came of reading all tensors.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Scanned {
    /// Bytes that were read.
    pub bytes: u64,
    /// Bytes that are still to be read: it was stopped.
    pub left: u64,
    /// Milliseconds.
    pub millis: f64,
    /// Tensors that can't be read, or have no numbers: the row, and why.
    pub unread: Vec<(u32, String)>,
    /// What should be looked at, the gravest first.
    pub noticed: Vec<Noticed>,
    /// What was looked for.
    pub looked_for: Vec<String>,
}

/// Something about values that should be looked at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Noticed {
    /// How grave.
    pub severity: Severity,
    /// A sentence.
    pub title: String,
    /// The numbers.
    pub text: String,
    /// What to do about it.
    pub advice: String,
    /// The rows that it is about.
    pub rows: Vec<u32>,
    /// The value to look at: its row, its number, its index.
    pub place: Option<(u32, u64, Vec<u64>)>,
    /// Deviations over depth: the layers, the values, which one stands out, what was expected of it.
    pub series: Option<(Vec<u64>, Vec<f64>, u32, f64)>,
}
