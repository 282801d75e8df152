//! Messages about the values of tensors: of one or of all.

use serde::{Deserialize, Serialize};
use statelens_values::Histogram;
use statelens_values::weights::Noticed;

/// The statistics of a tensor that the table shows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RowValues {
    pub row: u32,
    /// The number of values.
    pub count: u64,
    /// NaN values.
    pub nan: u64,
    /// Infinite values.
    pub infinite: u64,
    pub zeros: u64,
    /// The smallest finite value.
    pub min: Option<f64>,
    /// The largest finite value.
    pub max: Option<f64>,
    pub mean: Option<f64>,
    /// The standard deviation.
    pub std: Option<f64>,
    /// The largest magnitude.
    pub abs_max: Option<f64>,
}

/// All statistics of a tensor's values.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TensorValues {
    /// The part that the table shows.
    pub short: RowValues,
    pub abs_mean: Option<f64>,
    /// The numbers of the largest magnitude, of the first NaN and of the first infinity.
    pub places: [Option<u64>; 3],
    /// The 1 %, 25 %, 50 %, 75 % and 99 % quantiles.
    pub quantiles: Option<[f64; 5]>,
    /// True if the quantiles are exact; otherwise they are within 1/256.
    pub exact: bool,
    /// Values more than six deviations from the mean.
    pub beyond: u64,
    /// True if all values are whole numbers.
    pub is_integer: bool,
    /// Histogram with bins of equal width.
    pub linear: Histogram,
    /// Histogram by magnitude, on both sides of zero.
    pub log: Histogram,
    /// Bytes read; 0 if the tensor was read with others.
    pub bytes: u64,
    /// Milliseconds spent.
    pub millis: f64,
}

/// The result of reading all tensors.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ScanReport {
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
