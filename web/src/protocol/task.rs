//! Tasks: requests that take long, their progress and their results.

use serde::{Deserialize, Serialize};

use super::job::JobKind;
use super::selection::MatrixSelection;
use crate::compare::message::tensor_diff::{Renames, TensorDiff};
use crate::compare::message::{CompareOptions, ComparisonUpdate};
use crate::convert::message::{ConversionResult, SaveTo};
use crate::matrix::message::ranked::{NormRanking, RankedRequest};
use crate::matrix::message::singular::SingularReport;
use crate::matrix::message::{ExportRequest, PackedOverview};
use crate::open::message::FileName;
use crate::run_folder::message::FileValues;
use crate::values::message::{ScanReport, TensorValues};
use crate::verify::message::VerifyReport;

/// A request that takes long.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum TaskRequest {
    /// Run a plan.
    Write {
        /// The request that produced the plan.
        request: u32,
        /// Where the bytes go. The handle of [`SaveTo::Handle`] is sent with this message.
        sink: SaveTo,
        /// Keep the files even if casts did more to numbers than round them.
        falsify: bool,
    },
    /// Verify: read everything once, check it also against the manifest that may be sent with this
    /// message, and keep the statistics and hashes of all tensors. With `finite`, any number that
    /// is not finite is an error.
    Verify { finite: bool },
    /// Read all tensors that were not read yet.
    Scan,
    /// Read one tensor, given by its row, for its statistics.
    Statistics(u32),
    /// Read a whole matrix, reduced to at most this many blocks across and down.
    Overview { selection: MatrixSelection, across: u32, down: u32 },
    /// Compute the singular values of a matrix: all, or only the largest.
    Singular { selection: MatrixSelection, all: bool },
    /// Export a tensor as a file.
    Export(ExportRequest),
    /// Rank the rows of a matrix by norm.
    Rank(RankedRequest),
    /// Compare two checkpoints: structure at once, then values.
    Compare(Box<CompareOptions>),
    /// Compare a row of the first closely with one of the second. Unless `on_request`, this stops
    /// at once if reading takes long, or has to be fetched.
    TensorDiff { pair: (u32, u32), on_request: bool },
    /// Search for tensors that have another key in the second.
    Renames(Box<CompareOptions>),
    /// Read all values of some of the files sent with this message, one after the other.
    RunValues {
        files: Vec<FileName>,
        /// Indices of the files to read.
        requested: Vec<u32>,
    },
}

impl TaskRequest {
    pub fn kind(&self) -> JobKind {
        match self {
            Self::Write { .. } => JobKind::Write,
            Self::Verify { .. } => JobKind::Verify,
            Self::Scan => JobKind::Scan,
            Self::Statistics(_) => JobKind::TensorStats,
            Self::Overview { .. } => JobKind::Overview,
            Self::Singular { .. } => JobKind::Singular,
            Self::Export(_) => JobKind::Export,
            Self::Rank(_) => JobKind::Rank,
            Self::Compare(_) => JobKind::Compare,
            Self::TensorDiff { .. } => JobKind::TensorDiff,
            Self::Renames(_) => JobKind::Renames,
            Self::RunValues { .. } => JobKind::RunValues,
        }
    }
}

/// The result of a task, or its result so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum TaskResult {
    /// The `Blob`s are sent with it, in an array; for [`SaveTo::Download`] the page saves them. If
    /// the task ends early, no files are left behind.
    Write(Box<ConversionResult>),
    Verify(Box<VerifyReport>),
    /// The result so far has only the statistics of tensors read since the last one. If the scan is
    /// stopped, it covers the tensors read so far.
    Scan(Box<ScanReport>),
    Statistics(Box<TensorValues>),
    /// If reading is stopped, it covers the blocks read so far.
    Overview(Box<PackedOverview>),
    Singular(Box<SingularReport>),
    /// The name of the file, which is sent with it.
    Export(String),
    Rank(Box<NormRanking>),
    /// Each message has the results since the last one.
    Compare(Box<ComparisonUpdate>),
    TensorDiff(Box<TensorDiff>),
    Renames(Box<Renames>),
    /// The values of files read since the last message.
    RunValues(Vec<FileValues>),
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JobProgress {
    /// Bytes processed, or operations of a computation.
    pub done: u64,
    pub total: u64,
    /// Milliseconds since the start.
    pub millis: f64,
    /// The key being written; empty for other jobs.
    pub key: String,
}

impl JobProgress {
    pub fn percent(&self) -> f64 {
        self.done as f64 / self.total.max(1) as f64 * 100.0
    }
}
