//! What page and worker say about comparing the open checkpoint with a second one.

use serde::{Deserialize, Serialize};

use super::closer::{Closely, Renaming, RowMeasured};
use super::error::ErrorText;
use super::opened::{FileName, Opened};

/// What the page asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum CompareRequest {
    /// Open the files that come beside this message as the second checkpoint.
    Open {
        /// Names and sizes, in the order of the `File`s.
        files: Vec<FileName>,
        /// Which of them to open; `None` lets the worker choose.
        main: Option<u32>,
    },
    /// Compare: structure at once, then values.
    Start {
        /// Chosen by the page; comes back with each answer, so that a late one is told apart.
        request: u32,
        /// How to compare.
        options: Box<CompareOptions>,
    },
    /// Stop reading values; what was found stays.
    Stop,
    /// Tell whether the open checkpoint would load into the second one.
    Check {
        /// Missing and unexpected keys are errors.
        strict: bool,
        /// The release that would load it; empty for any.
        release: String,
    },
    /// Hand over the report of a comparison that is complete.
    Report,
    /// Look at a row of the first and one of the second more closely, if that takes no long time or if
    /// it is asked for; nothing stops that.
    Closer(Option<(u32, u32, bool)>),
    /// Look for tensors that have another key there; nothing stops that.
    Renames(Option<Box<CompareOptions>>),
    /// Forget the second checkpoint.
    Close,
}

/// How to compare. The same words as the command line.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CompareOptions {
    /// What is taken off the start of every key of the first.
    pub strip_prefix: String,
    /// Replacements in keys of the first, `REGEX=>REPLACEMENT`.
    pub rename: Vec<String>,
    /// New names of keys of the first, as a list of old and new ones; empty for none.
    pub names: String,
    /// What is put before every key of the first.
    pub prefix: String,
    /// `rtol` and `atol`, if numbers that are close match.
    pub tolerance: Option<(f64, f64)>,
    /// Two NaNs in the same place differ.
    pub nan_differs: bool,
    /// Tensors of other dtypes match if their numbers do.
    pub ignore_dtype: bool,
    /// A numpy array and a tensor match if their numbers do.
    pub ignore_type: bool,
}

/// What the worker answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum CompareReply {
    /// The second checkpoint is open.
    Opened(Box<Opened>),
    /// It could not be opened.
    OpenFailed(ErrorText),
    /// It is not a checkpoint but a manifest or a list of so many keys.
    Listed(u64),
    /// What is known without reading an element.
    Structure {
        /// The request.
        request: u32,
        /// What belongs together, or why nothing can be compared.
        structure: Result<StructureDifference, ErrorText>,
    },
    /// Values are being read.
    Progress(CompareProgress),
    /// Values are read, or no longer being read.
    Ended {
        /// The request.
        request: u32,
        /// Whether everything was compared.
        end: End,
        /// Milliseconds that it took.
        millis: f64,
        /// Tensors that match only within the tolerance.
        close: u64,
        /// NaNs that were taken as equal for being in the same place.
        nans: u64,
    },
    /// Whether it would load.
    Checked(Checked),
    /// The report, as the command prints it.
    Report(String),
    /// About a row of the first and one of the second.
    Closer((u32, u32), Closely),
    /// About tensors that have another key there.
    Renames(Renaming),
}

/// How a comparison ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum End {
    /// Everything was compared.
    Complete,
    /// It was asked to stop.
    Stopped,
    /// It could not go on.
    Failed(ErrorText),
}

/// What belongs together, and what differs before an element is read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StructureDifference {
    /// For each row of the first its row in the second; [`NO_ROW`] for none.
    pub pairs: Vec<u32>,
    /// The differences so far.
    pub found: Vec<Difference>,
    /// Rows of the first whose values are still to be read.
    pub waiting: Vec<u32>,
    /// Bytes that are to be read, of both.
    pub bytes: u64,
    /// The replacement that would make most of the keys match that now don't, and how many.
    pub rename: Option<(String, u64)>,
    /// The command that does the same.
    pub command: String,
}

/// In a list of rows: none.
pub const NO_ROW: u32 = u32::MAX;

/// How far the values are read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompareProgress {
    /// The request.
    pub request: u32,
    /// Bytes of both that are compared.
    pub done: u64,
    /// Bytes of both.
    pub total: u64,
    /// Milliseconds since it began.
    pub millis: f64,
    /// Rows of the first that were compared to their end since the last message.
    pub settled: Vec<u32>,
    /// What was found since then.
    pub found: Vec<Difference>,
    /// Norms and deviations that became known since then, of equal rows, too.
    pub measured: Vec<RowMeasured>,
}

/// A difference at a key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// The row of the first; [`NO_ROW`] for a key that only the second has.
    pub a: u32,
    /// The row of the second; [`NO_ROW`] for a key that only the first has.
    pub b: u32,
    /// What differs.
    pub what: DifferenceKind,
    /// Which part of a sparse or quantised tensor; empty for the whole.
    pub part: String,
    /// What stands in the first, or why it can't be read.
    pub left: String,
    /// What stands in the second.
    pub right: String,
    /// The parameter that an entry of an optimizer is of, in backticks; empty if it is not one.
    pub parameter: String,
    /// How far the elements are apart.
    pub numbers: Option<Box<Numbers>>,
}

/// The ways to differ, as the command names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DifferenceKind {
    /// Only the first has the key.
    OnlyLeft,
    /// Only the second has it.
    OnlyRight,
    /// Values of different kinds.
    Type,
    /// Tensors of different shapes.
    Shape,
    /// Tensors of different dtypes.
    DType,
    /// Plain values that differ.
    Value,
    /// Elements of tensors that differ.
    Elements,
    /// Elements of tensors that are NaN on one side only.
    Nan,
    /// Nobody knows: a tensor can't be read.
    Unreadable,
}

/// How far two tensors are apart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Numbers {
    /// Elements of either.
    pub elements: u64,
    /// Those that do not match.
    pub differing: u64,
    /// The index of the first of these.
    pub first: Vec<u64>,
    /// False for elements that are no numbers: then the rest means nothing.
    pub numeric: bool,
    /// Elements that are finite on both sides, which the errors are of.
    pub finite: u64,
    /// The largest difference; `None` where it is not defined.
    pub max_abs: Option<f64>,
    /// The largest difference relative to the second.
    pub max_rel: Option<f64>,
    /// The mean of the squared differences.
    pub mse: Option<f64>,
    /// The cosine of the angle between both.
    pub cosine: Option<f64>,
    /// The relative change: the norm of the difference over that of the second.
    pub change: Option<f64>,
    /// Elements that are NaN on one side only.
    pub one_nan: u64,
    /// How the second less the first is spread where they differ: how far the bars go to either side, and how many values
    /// are in each; none where that is not known.
    pub spread: Option<(f64, Vec<u64>)>,
    /// How they compare where the dtypes differ: `equal at bfloat16 precision`; else empty.
    pub precision: String,
    /// NaNs in the first and the second.
    pub nans: (u64, u64),
}

/// Whether the first would load into what the second describes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// The answer.
    pub loads: bool,
    /// The states that were held against each other; empty for all of it.
    pub states: (String, String),
    /// Keys that are on both sides with the same shape.
    pub matching: u64,
    /// Keys that are missing, not expected, of other shapes.
    pub counts: (u64, u64, u64),
    /// What was found: the word, the key, what is there, how many keys, their numbers.
    pub lines: Vec<(String, String, String, u64, String)>,
    /// The option of `statelens convert` that would make most keys match, and how many.
    pub rename: Option<(String, u64)>,
    /// The trainer puts `model.` before the keys by itself.
    pub prefixed: bool,
    /// True if missing and unexpected keys counted.
    pub strict: bool,
    /// What there is to say about the release that was asked about.
    pub of_release: Vec<String>,
    /// The releases that can be asked about; none of what no trainer wrote.
    pub releases: Vec<String>,
}
