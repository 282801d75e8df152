//! Messages about comparing the open checkpoint with a second one.

pub mod tensor_diff;

use serde::{Deserialize, Serialize};
use statelens_compare::check::CheckLine;
use statelens_compare::diff::{DifferenceKind, PairChange};

use crate::open::message::{FileName, OpenedCheckpoint};
use crate::protocol::error::ErrorText;
use crate::rows::packed_numbers;

/// Requests from the page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum CompareRequest {
    /// Open the files sent with this message as the second checkpoint.
    Open {
        files: Vec<FileName>,
        /// The file to open; `None` lets the worker choose.
        main: Option<u32>,
    },
    /// Compare two tensors of the open checkpoint, given by their rows, instead of two checkpoints.
    Picked(u32, u32),
    /// Check whether the open checkpoint would load into the second one.
    Check {
        /// Missing and unexpected keys are errors.
        strict: bool,
        /// The release that would load it; empty for any.
        release: String,
    },
    /// Send the report of a complete comparison.
    Report(ReportFormat),
    /// Close the second checkpoint.
    Close,
}

/// How to compare. The fields are named after the command's options.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CompareOptions {
    /// Prefix removed from every key of the first.
    pub strip_prefix: String,
    /// Replacements in keys of the first, `REGEX=>REPLACEMENT`.
    pub rename: Vec<String>,
    /// List of old and new keys of the first; empty for none.
    pub names: String,
    /// Prefix added to every key of the first.
    pub prefix: String,
    /// `rtol` and `atol`, if close numbers match.
    pub tolerance: Option<(f64, f64)>,
    /// Two NaNs at the same index differ.
    pub nan_differs: bool,
    /// Tensors of different dtypes match if their numbers do.
    pub ignore_dtype: bool,
    /// A numpy array and a tensor match if their numbers do.
    pub ignore_type: bool,
}

/// The file that was opened as the second side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ComparedFile {
    Checkpoint(Box<OpenedCheckpoint>),
    /// Not a checkpoint but a manifest or a list with this number of keys.
    List(u64),
}

/// The formats of the report of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReportFormat {
    /// As the command prints it.
    Json,
    Markdown,
    Html,
}

impl ReportFormat {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Html, Self::Markdown, Self::Json];

    /// Returns the name of the file.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Json => "comparison.json",
            Self::Markdown => "comparison.md",
            Self::Html => "comparison.html",
        }
    }

    /// Returns the name of the format.
    pub fn name(self) -> &'static str {
        match self {
            Self::Json => "JSON",
            Self::Markdown => "Markdown",
            Self::Html => "HTML",
        }
    }
}

/// Results of a comparison since the last message.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ComparisonUpdate {
    /// In the first message, before any element is read: pairs and differences, or why the two
    /// can't be compared.
    pub structure: Option<Result<StructureDifference, ErrorText>>,
    /// Rows of the first that were fully compared.
    #[serde(with = "packed_numbers")]
    pub settled: Vec<u32>,
    /// Differences found by reading values.
    pub found: Vec<Difference>,
    /// Norms and deviations, of equal rows too. Their leaves are rows of the first.
    pub measured: Vec<PairChange>,
    /// Milliseconds spent. Like the following figures, 0 until the end.
    pub millis: f64,
    /// Tensors that match only within the tolerance.
    pub close: u64,
    /// NaNs taken as equal because they are at the same index.
    pub nans: u64,
}

/// Pairs of rows, and the differences found before any element is read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StructureDifference {
    /// For each row of the first, its row in the second; [`NO_ROW`] for unpaired rows.
    #[serde(with = "packed_numbers")]
    pub pairs: Vec<u32>,
    pub found: Vec<Difference>,
    /// Rows of the second that are not compared: metadata of a GGUF file.
    #[serde(with = "packed_numbers")]
    pub outside: Vec<u32>,
    /// Rows of the first whose values have yet to be read.
    #[serde(with = "packed_numbers")]
    pub waiting: Vec<u32>,
    /// The replacement that would pair most of the unpaired keys, and how many it pairs.
    pub rename: Option<(String, u64)>,
    /// Whether only one side is quantised.
    pub quantised: bool,
    /// The equivalent command.
    pub command: String,
}

/// Stands for "no row" in a list of rows.
pub const NO_ROW: u32 = u32::MAX;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// The row of the first; [`NO_ROW`] for a key that only the second has.
    pub a: u32,
    /// The row of the second; [`NO_ROW`] for a key that only the first has.
    pub b: u32,
    pub kind: DifferenceKind,
    /// Which part of a sparse or quantised tensor; empty for the whole.
    pub part: String,
    /// The parameter that an optimizer entry belongs to, in backticks; empty for other leaves.
    pub parameter: String,
}

/// Whether the first would load into what the second describes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StateDictCheck {
    pub loads: bool,
    /// The states that were compared; empty for the whole checkpoint.
    pub states: (String, String),
    /// Keys that both sides have with the same shape.
    pub matching: u64,
    /// Missing keys, unexpected keys.
    pub counts: [u64; 2],
    /// Keys with different shapes.
    pub shapes: u64,
    pub lines: Vec<CheckLine>,
    /// The option of `statelens convert` that would make most keys match, and how many.
    pub rename: Option<(String, u64)>,
    /// The trainer adds the prefix `model.` by itself.
    pub prefixed: bool,
    /// Whether missing and unexpected keys counted as errors.
    pub strict: bool,
    /// Notes about the requested release.
    pub of_release: Vec<String>,
    /// The releases to choose from; empty if the file was not written by a trainer.
    pub releases: Vec<String>,
}
