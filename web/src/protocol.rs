//! The messages between the page and its worker, defined once.
//!
//! Messages cross as JavaScript values (`serde-wasm-bindgen`). What serde can't carry (`File`s, a
//! file handle from a save dialog, the finished `Blob`s) travels next to the message, in the fields
//! [`FILES`] and [`HANDLE`]. Rows, of which there may be a hundred thousand, cross as one
//! `Uint8Array` (see [`crate::rows`]).

pub mod assist;
pub mod error;
pub mod job;
pub mod selection;
pub mod task;

use serde::{Deserialize, Serialize};
use statelens_compare::runs::OpenCheck;
use statelens_describe::share::LinkOptions;

use crate::convert::message::{ConvertOptions, PlanSummary};
use crate::inspector::message::{FormattedValues, RowDetails, TensorLine};
use crate::matrix::message::singular::SingularOffer;
use crate::matrix::message::{Cells, MatrixSelection};
use crate::open::message::{
    FetchConsent, FetchStats, FileName, FoundCheckpoint, OpenedCheckpoint, StoredMember,
};
use crate::protocol::error::ErrorText;
use crate::protocol::job::{JobEnd, JobKind};
use crate::protocol::task::{JobProgress, TaskRequest, TaskResult};
use crate::quantised::message::ShownAs;
use crate::read_as::message::ReadAs;
use crate::rows::PackedRows;
use crate::share::message::{SharedSummary, SummaryKind};
use crate::{compare, family, model_description};

/// The field of a posted object that holds the message.
pub const MESSAGE: &str = "message";
/// The field that holds an array of `File`s, in the order of [`ToWorker::Open`]'s names.
pub const FILES: &str = "files";
/// The field that holds a port for reading the files, if another page offers them.
pub const PORT: &str = "port";
/// The field that holds a file handle to write to, or the finished `Blob`s.
pub const HANDLE: &str = "handle";

/// A message with its session and job. A session is an open checkpoint in the worker; the worker
/// refuses requests for any other session. Each request begins a job, and all replies to it carry
/// the job's number. [`FromWorker::Ended`] is the last of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobMessage<T> {
    /// The session's number, chosen by the page.
    pub session: u32,
    /// The job's number, chosen by the page.
    pub job: u32,
    pub message: T,
}

/// Requests from the page to the worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToWorker {
    /// Open the files sent with this message as one checkpoint.
    Open {
        files: Vec<FileName>,
        /// The file to open; `None` lets the worker choose. The others serve links and shards.
        main: Option<u32>,
        /// Factor by which the default limits are raised.
        times: u64,
        /// The dtypes of arrays that are stored without one.
        read_as: ReadAs,
    },
    /// Open the checkpoint at an address, with the files next to it that belong to it.
    OpenAddress {
        /// The absolute address.
        url: String,
        /// What the user has agreed to.
        agreed: FetchConsent,
        /// The token of an account on the Hugging Face Hub; may be empty. Goes to the Hub only.
        token: String,
    },
    /// Change how many bytes one action may fetch.
    Allow {
        cap: u64,
    },
    /// Open the summary that a link carries after its `#`.
    OpenLink {
        /// The part after the `#`.
        fragment: String,
    },
    /// Make a link, and list what it contains.
    Share {
        /// What to include.
        options: LinkOptions,
    },
    /// Write a summary as a file.
    Summarize {
        kind: SummaryKind,
    },
    /// Describe one row in full.
    Inspect {
        /// The row, as numbered by [`OpenedCheckpoint::rows`].
        row: u32,
    },
    /// Read values of a tensor.
    Values {
        row: u32,
        /// A slice in Python's notation, without the brackets; empty for the whole tensor.
        slice: String,
        /// Number of the first value, in C order.
        start: u64,
        /// Maximum number of values.
        count: u32,
        /// Another reading of the stored bytes.
        shown: Option<ShownAs>,
    },
    /// Read the values of a tensor along one dimension: the row, and a slice in Python's notation.
    Line(u32, String),
    /// Plan a conversion without writing it.
    Plan {
        /// Chosen by the page and repeated in the reply, so that the page can drop a late reply.
        request: u32,
        /// The target and its options.
        options: Box<ConvertOptions>,
    },
    Start(TaskRequest),
    /// Stop the jobs of a kind. Of a conversion, this removes what it wrote; of other jobs, the
    /// results so far are kept.
    Stop(JobKind),
    /// A request about comparing with a second checkpoint.
    Compare(compare::message::CompareRequest),
    /// Read a part of a tensor to measure the speed.
    Rate(u32),
    /// Read the values of a window of a matrix: its first row and column, its number of rows and
    /// columns.
    Cells(MatrixSelection, [u64; 4]),
    /// Estimate what computing the singular values of a matrix takes.
    SingularOffers(MatrixSelection),
    /// Open the structure of some of the files sent with this message, one after the other, and
    /// report the problems of each. This begins a session without an open checkpoint.
    CheckRun {
        files: Vec<FileName>,
        /// Indices of the files to open.
        requested: Vec<u32>,
    },
    /// Open the structure of some of the files sent with this message, one after the other, and
    /// report which are damaged. The open checkpoint stays open.
    CheckFiles {
        files: Vec<FileName>,
        /// Indices of the files to open.
        requested: Vec<u32>,
    },
    /// Model family files that the worker requested: path and text, `None` if the file can't be
    /// fetched.
    Provide(Vec<(String, Option<String>)>),
    /// Describe the model; with `true`, fetch the config next to it first.
    DescribeModel(bool),
    /// Remove the outputs in private storage that are not open.
    FreeOutputs,
    /// Close the open checkpoint.
    Close,
}

impl ToWorker {
    /// Returns the kind of job that this request begins.
    pub fn kind(&self) -> JobKind {
        match self {
            Self::Open { .. } | Self::OpenAddress { .. } | Self::OpenLink { .. } => JobKind::Open,
            Self::CheckRun { .. } => JobKind::CheckRun,
            Self::CheckFiles { .. } => JobKind::CheckFiles,
            Self::Start(task) => task.kind(),
            Self::Cells(..) => JobKind::Cells,
            Self::Compare(compare::message::CompareRequest::Open { .. }) => JobKind::OpenCompared,
            Self::Inspect { .. } => JobKind::Inspect,
            Self::Values { .. } => JobKind::Values,
            Self::Plan { .. } => JobKind::Plan,
            Self::Share { .. } => JobKind::Share,
            Self::Allow { .. }
            | Self::Summarize { .. }
            | Self::Stop(_)
            | Self::Compare(_)
            | Self::Rate(_)
            | Self::Provide(_)
            | Self::DescribeModel(_)
            | Self::SingularOffers(_)
            | Self::FreeOutputs
            | Self::Line(..)
            | Self::Close => JobKind::Other,
        }
    }

    /// Returns whether this request begins a new session, which replaces the current one.
    pub fn begins_session(&self) -> bool {
        matches!(self.kind(), JobKind::Open | JobKind::CheckRun) || *self == Self::Close
    }
}

/// Replies from the worker to the page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromWorker {
    /// The worker has started and is listening.
    Ready,
    Opening {
        /// The current activity, in a few words.
        doing: String,
        keys: u64,
        read: u64,
        calls: u64,
    },
    Checkpoints(Vec<FoundCheckpoint>),
    /// The file to open, as an index, is an archive with these members. The page opens them in its
    /// place.
    Members(u32, Vec<StoredMember>),
    /// The first tensors of the checkpoint being opened.
    Found(PackedRows),
    /// Bytes and requests of a remote checkpoint so far.
    Fetched(FetchStats),
    Opened(Box<OpenedCheckpoint>),
    /// The checkpoint could not be opened.
    OpenFailed(ErrorText),
    /// The worker has stopped. The page posts this to itself.
    Crashed(ErrorText),
    /// The reply to [`ToWorker::Share`].
    Shared(Box<SharedSummary>),
    /// A summary or a report, which the page saves.
    Summary {
        /// The name of the file.
        name: String,
        /// The contents of the file.
        text: String,
    },
    /// The reply to [`ToWorker::Inspect`].
    Inspected(RowDetails),
    /// The reply to [`ToWorker::Values`].
    Values(FormattedValues),
    /// The reply to [`ToWorker::Line`].
    Line(TensorLine),
    /// The first reply to [`ToWorker::Plan`], before the files are planned.
    Family {
        /// The request's number.
        request: u32,
        /// The recognised model and the outcome of converting it; `None` if the plan is not a
        /// conversion.
        family: Option<Box<family::message::FamilyReply>>,
    },
    /// The last reply to [`ToWorker::Plan`].
    Planned {
        /// The request's number.
        request: u32,
        /// The plan, or why it can't be made.
        plan: Result<PlanSummary, ErrorText>,
    },
    /// Paths of the model family files that the worker needs before it can reply to
    /// [`ToWorker::Plan`].
    FilesNeeded(Vec<String>),
    /// Progress of the task of this kind.
    Progress(JobKind, JobProgress),
    /// The result of a task so far, or since the last message.
    Partial(TaskResult),
    /// The result of a task, which is then over.
    Done(TaskResult),
    /// The task of this kind failed; `None` if the page stopped it.
    Failed(JobKind, Option<ErrorText>),
    /// The reply to a request to open the second side of a comparison.
    ComparedOpened(Result<compare::message::ComparedFile, ErrorText>),
    /// Whether the open checkpoint would load into the second side.
    LoadChecked(Box<compare::message::StateDictCheck>),
    /// The bytes of all outputs of this tab that are in private storage.
    KeptOutputs(u64),
    /// The reply to [`ToWorker::Rate`]: bytes read per millisecond.
    Rate(f64),
    /// The reply to [`ToWorker::Cells`].
    Cells(MatrixSelection, Result<Box<Cells>, ErrorText>),
    /// The singular values that can be computed; empty if the selection is not a matrix of real
    /// numbers.
    SingularOffers(MatrixSelection, Vec<SingularOffer>),
    /// The reply to [`ToWorker::DescribeModel`].
    ModelDescription(Box<model_description::message::ModelDescription>),
    /// A file of [`ToWorker::CheckRun`] or [`ToWorker::CheckFiles`], as an index, and the result of
    /// opening it.
    FileChecked(u32, OpenCheck),
    /// The job of this kind is over; its results were sent before.
    Ended(JobKind, JobEnd),
}
