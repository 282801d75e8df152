//! Jobs: what each request of the page begins, and how it ends.

use serde::{Deserialize, Serialize};

/// The kind of a job. Of most kinds only one runs at a time: a new job replaces the running one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobKind {
    /// Opening a checkpoint. The worker receives no messages meanwhile.
    Open,
    /// Opening the files of a run folder.
    CheckRun,
    /// Opening the other files of a drop, to find damaged ones.
    CheckFiles,
    Write,
    Verify,
    /// Reading the values of all tensors.
    Scan,
    /// Reading the values of the checkpoints of a run folder.
    RunValues,
    /// Reading the values of one tensor.
    TensorStats,
    /// Reading a matrix as a picture.
    Overview,
    /// Reading a window of that matrix.
    Cells,
    /// Computing its singular values.
    Singular,
    /// Exporting a tensor as a file.
    Export,
    /// Ranking its rows.
    Rank,
    OpenCompared,
    /// Comparing with it.
    Compare,
    /// Comparing a pair of tensors closely.
    TensorDiff,
    /// Searching the second checkpoint for renamed tensors.
    Renames,
    /// Describing a row.
    Inspect,
    Values,
    /// Planning a conversion.
    Plan,
    Share,
    /// Requests that are completed as soon as they are received.
    Other,
}

impl JobKind {
    /// Returns whether a new job of this kind replaces the running one.
    pub fn is_single(self) -> bool {
        !matches!(self, Self::Write | Self::Other)
    }
}

/// Why a job is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobEnd {
    /// It finished or failed.
    Completed,
    /// It was stopped, or another job of its kind began.
    Stopped,
    /// Something else was opened.
    Replaced,
    /// It was about a session that is not open, or not any more.
    Refused,
}
