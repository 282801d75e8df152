//! Jobs: what each message of the page begins, and how it ends.

use serde::{Deserialize, Serialize};

/// What a job does. Of most kinds there is one at a time: the next one takes the place of the one
/// before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobKind {
    /// Opening a checkpoint, which listens to nothing meanwhile.
    Open,
    /// Opening the files of a run folder.
    Look,
    /// Opening the other files of a drop, to tell which are damaged.
    CheckFiles,
    /// Writing a conversion.
    Write,
    /// Verifying.
    Verify,
    /// Reading the values of all tensors.
    Scan,
    /// Reading the values of one.
    Read,
    /// Reading a matrix as a picture.
    Overview,
    /// Reading a window of it.
    Window,
    /// Finding its singular values.
    Singular,
    /// Making a file of a tensor.
    Take,
    /// Ranking its rows.
    Rank,
    /// Opening a second checkpoint.
    OpenSecond,
    /// Comparing with it.
    Compare,
    /// Looking at a pair of tensors more closely.
    Closer,
    /// Looking for tensors that have another key there.
    Renames,
    /// Telling about a row.
    Inspect,
    /// Reading values of a tensor.
    Values,
    /// Laying out a conversion.
    Plan,
    /// Making a link.
    Share,
    /// What is over as soon as it is heard.
    Other,
}

impl JobKind {
    /// Whether a job takes the place of one of the same kind.
    #[must_use]
    pub fn is_single(self) -> bool {
        !matches!(self, Self::Write | Self::Other)
    }
}

/// Why a job is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    /// It came to its end, or failed.
    ByItself,
    /// It was asked to stop, or another one of its kind began.
    Stopped,
    /// Something else was opened.
    Replaced,
    /// It was about something that is not open, or not any more.
    Refused,
}
