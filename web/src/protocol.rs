//! The messages between the page and its worker, defined once.
//!
//! Messages cross as JavaScript values (`serde-wasm-bindgen`). What serde can't carry - `File`s, a
//! file handle from a save dialog, the finished `Blob` - travels beside the message, in the fields
//! that [`FILES`] and [`HANDLE`] name. Rows, of which there may be a hundred thousand, are one
//! `Uint8Array` (see [`crate::rows`]).

pub mod closer;
pub mod compare;
pub mod conversion;
pub mod error;
pub mod family;
pub mod finding;
pub mod frame;
pub mod inspected;
pub mod job;
pub mod looking;
pub mod opened;
pub mod ranked;
pub mod rewrite;
pub mod run;
pub mod share;
pub mod singular;
pub mod understanding;
pub mod verify;
pub mod weights;

use serde::{Deserialize, Serialize};

use self::conversion::{ConvertOptions, Done, Planned, Running, SaveTo};
use self::error::ErrorText;
use self::inspected::{FormattedValues, Inspected};
use self::job::{Ended, JobKind};
use self::opened::{Agreed, Fetched, FileName, FoundCheckpoint, Opened};
use self::run::{OpenCheck, RunValues};
use self::share::{ShareOptions, SharedSummary, SummaryKind};
use crate::rows::PackedRows;

/// The field of a posted object that holds the message itself.
pub const MESSAGE: &str = "message";
/// The field that holds an array of `File`s, in the order of [`ToWorker::Open`]'s names.
pub const FILES: &str = "files";
/// The field that holds a file handle to write to, or the finished `Blob`.
pub const HANDLE: &str = "handle";

/// A message, and whose it is. What is open in the worker is a session: each question is about one
/// of them, and the worker answers none about another. Each question begins a job, of which all
/// answers are; when it is over, [`FromWorker::Ended`] says so.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Posted<T> {
    /// The session, counted by the page.
    pub session: u32,
    /// The job, counted by the page.
    pub job: u32,
    /// The message.
    pub message: T,
}

/// What the page asks of the worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToWorker {
    /// Open the files that come beside this message as one checkpoint.
    Open {
        /// Names and sizes, in the order of the `File`s.
        files: Vec<FileName>,
        /// Which of them to open; `None` lets the worker choose. The others serve links and shards.
        main: Option<u32>,
        /// How many times the usual may be spent on it.
        times: u64,
    },
    /// Open the checkpoint at an address, with the files beside it that belong to it.
    OpenAddress {
        /// The address, absolute.
        url: String,
        /// What may be done.
        agreed: Agreed,
    },
    /// Change how many bytes one action may fetch.
    Allow {
        /// That many.
        cap: u64,
    },
    /// Open the summary that an address holds behind its `#`.
    OpenLink {
        /// The part behind the `#`.
        fragment: String,
    },
    /// Make a link, and tell what is in it.
    Share {
        /// What goes into it.
        options: ShareOptions,
    },
    /// Write a summary as a file.
    Summarize {
        /// As which.
        kind: SummaryKind,
    },
    /// Tell everything about one row.
    Inspect {
        /// The row, as numbered by [`Opened::rows`].
        row: u32,
    },
    /// Read values of a tensor.
    Values {
        /// The row.
        row: u32,
        /// What of it, as Python has it between brackets; nothing of the whole.
        slice: String,
        /// The first value, counted in C order.
        start: u64,
        /// How many values at most.
        count: u32,
    },
    /// Lay out a conversion without writing it.
    Plan {
        /// Chosen by the page; comes back with the answer, so that a late one is told apart.
        request: u32,
        /// What to convert to, and how.
        options: Box<ConvertOptions>,
    },
    /// Run a plan.
    Run {
        /// The request that it was the answer to.
        request: u32,
        /// Where the bytes go. A [`SaveTo::Handle`] comes beside this message.
        sink: SaveTo,
        /// The files are kept even if casts did more to numbers than round them.
        falsify: bool,
    },
    /// Stop the running conversion and remove what it wrote.
    Cancel,
    /// About comparing with a second checkpoint.
    Compare(compare::CompareRequest),
    /// Read everything once: tell whether it is sound, also against the manifest that may come beside this message, and
    /// keep the statistics and hashes of all tensors. With `true` it is sound only if all numbers are finite. `None`
    /// stops that.
    Verify(Option<bool>),
    /// About the values of tensors.
    Weights(weights::WeightsRequest),
    /// About a matrix that is looked at as a picture.
    Looking(looking::LookingRequest),
    /// Open the structure of some of the files that come beside this message, one after the
    /// other, to tell what is wrong with them. Nothing else is open then.
    Look {
        /// Names and sizes, in the order of the `File`s.
        files: Vec<FileName>,
        /// Those to open.
        asked: Vec<u32>,
    },
    /// Open the structure of some of the files that come beside this message, one after the other, to tell which
    /// are damaged. What is open stays open.
    CheckFiles {
        /// Names and sizes, in the order of the `File`s.
        files: Vec<FileName>,
        /// Those to open.
        asked: Vec<u32>,
    },
    /// Read all values of some of the files that come beside this message, one after the other; of none
    /// stops that.
    RunValues {
        /// Names and sizes, in the order of the `File`s.
        files: Vec<FileName>,
        /// Those to read.
        asked: Vec<u32>,
    },
    /// Files of families that were asked for, by their paths; nothing for what can't be fetched.
    Provide(Vec<(String, Option<String>)>),
    /// Tell what the model is; with `true`, fetch the config beside it first.
    Understand(bool),
    /// Forget the open checkpoint.
    Close,
}

impl ToWorker {
    /// What the job does that it begins.
    #[must_use]
    pub fn kind(&self) -> JobKind {
        match self {
            Self::Open { .. } | Self::OpenAddress { .. } | Self::OpenLink { .. } => JobKind::Open,
            Self::Look { .. } => JobKind::Look,
            Self::CheckFiles { .. } => JobKind::CheckFiles,
            Self::Run { .. } => JobKind::Write,
            Self::RunValues { asked, .. } if !asked.is_empty() => JobKind::Scan,
            Self::Verify(Some(_)) => JobKind::Verify,
            Self::Weights(weights::WeightsRequest::Scan(true)) => JobKind::Scan,
            Self::Weights(weights::WeightsRequest::Read(Some(_))) => JobKind::Read,
            Self::Looking(looking::LookingRequest::Overview(Some(_))) => JobKind::Overview,
            Self::Looking(looking::LookingRequest::Cells(..)) => JobKind::Window,
            Self::Looking(looking::LookingRequest::Singular(singular::SingularRequest::Find(
                Some(_),
            ))) => JobKind::Singular,
            Self::Looking(looking::LookingRequest::Take(Some(_))) => JobKind::Take,
            Self::Looking(looking::LookingRequest::Ranked(Some(_))) => JobKind::Rank,
            Self::Compare(compare::CompareRequest::Open { .. }) => JobKind::OpenSecond,
            Self::Compare(compare::CompareRequest::Start { .. }) => JobKind::Compare,
            Self::Compare(compare::CompareRequest::Closer(Some(_))) => JobKind::Closer,
            Self::Compare(compare::CompareRequest::Renames(Some(_))) => JobKind::Renames,
            Self::Inspect { .. } => JobKind::Inspect,
            Self::Values { .. } => JobKind::Values,
            Self::Plan { .. } => JobKind::Plan,
            Self::Share { .. } => JobKind::Share,
            Self::Allow { .. }
            | Self::Summarize { .. }
            | Self::Cancel
            | Self::RunValues { .. }
            | Self::Compare(_)
            | Self::Verify(None)
            | Self::Weights(_)
            | Self::Provide(_)
            | Self::Understand(_)
            | Self::Looking(
                looking::LookingRequest::Overview(None)
                | looking::LookingRequest::Singular(_)
                | looking::LookingRequest::Take(None)
                | looking::LookingRequest::Ranked(None),
            )
            | Self::Close => JobKind::Other,
        }
    }

    /// Whether a session begins with it, in the place of the one before.
    #[must_use]
    pub fn begins_session(&self) -> bool {
        matches!(self.kind(), JobKind::Open | JobKind::Look) || *self == Self::Close
    }
}

/// What the worker tells the page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromWorker {
    /// The worker has started and listens.
    Ready,
    /// A checkpoint is being opened.
    Opening {
        /// What is being done, in a few words.
        doing: String,
        /// Keys found so far.
        keys: u64,
        /// Bytes read so far.
        read: u64,
        /// Reads made so far.
        calls: u64,
    },
    /// Several checkpoints were found among the files that are being opened.
    Checkpoints(Vec<FoundCheckpoint>),
    /// The first tensors of what is being opened.
    Found(PackedRows),
    /// What has been fetched of a remote checkpoint so far.
    Fetched(Fetched),
    /// The checkpoint is open.
    Opened(Box<Opened>),
    /// It could not be opened.
    OpenFailed(ErrorText),
    /// The worker has stopped; the page says so itself.
    Crashed(ErrorText),
    /// The answer to [`ToWorker::Share`].
    Shared(Box<SharedSummary>),
    /// The answer to [`ToWorker::Summarize`]; the page saves it.
    Summary {
        /// The name of the file.
        name: String,
        /// What is in it.
        text: String,
    },
    /// Everything about a row.
    Inspected(Inspected),
    /// Values of a tensor.
    Valued(FormattedValues),
    /// The first answer to [`ToWorker::Plan`], before the files are planned.
    Family {
        /// The request it answers.
        request: u32,
        /// Which model it is, and what becomes of it; nothing for what is no conversion.
        family: Option<Box<family::FamilyReply>>,
    },
    /// The last answer to [`ToWorker::Plan`].
    Planned {
        /// The request it answers.
        request: u32,
        /// The plan, or why there is none.
        plan: Result<Planned, ErrorText>,
    },
    /// Files of families are needed, by their paths, before [`ToWorker::Plan`] can be answered.
    Wants(Vec<String>),
    /// A conversion is under way.
    Running(Running),
    /// A conversion is complete. The `Blob`s come beside this message, in
    /// an array; for [`SaveTo::Download`] the page saves them.
    Done(Done),
    /// A conversion ended before it was complete; nothing is left behind.
    Stopped {
        /// `None` if it was cancelled.
        error: Option<ErrorText>,
    },
    /// About comparing with a second checkpoint.
    Compare(compare::CompareReply),
    /// About verifying.
    Verify(verify::VerifyReply),
    /// About the values of tensors.
    Weights(weights::WeightsReply),
    /// About a matrix that is looked at as a picture.
    Looking(looking::LookingReply),
    /// The answer to [`ToWorker::Understand`].
    Understood(Box<understanding::Understood>),
    /// A file of [`ToWorker::Look`] or [`ToWorker::CheckFiles`] was opened, or can't be.
    Looked(OpenCheck),
    /// About the values of a run folder.
    RunValues(RunValues),
    /// The job is over; what came of it was told before.
    Ended(Ended),
}
