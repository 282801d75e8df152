//! The messages between the page and its worker, defined once.
//!
//! Messages cross as JavaScript values (`serde-wasm-bindgen`). What serde can't carry - `File`s, a
//! file handle from a save dialog, the finished `Blob` - travels beside the message, in the fields
//! that [`FILES`] and [`HANDLE`] name. Rows, of which there may be a hundred thousand, are one
//! `Uint8Array` (see [`crate::rows`]).

pub mod closer;
pub mod compare;
pub mod family;
pub mod frame;
pub mod looking;
pub mod ranked;
pub mod share;
pub mod singular;
pub mod understanding;
pub mod verify;
pub mod weights;

use serde::{Deserialize, Serialize};

use self::share::{ShareOptions, Shared, SummaryKind};
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

/// What a job does. Of most kinds there is one at a time: the next one takes the place of the one
/// before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobKind {
    /// Opening a checkpoint, which listens to nothing meanwhile.
    Open,
    /// Opening the files of a run folder.
    Look,
    /// Writing a conversion.
    Write,
    /// Reading all values.
    Measure,
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
    /// Read all values, for the statistics of tensors and the fingerprint of the content.
    Measure {
        /// False stops it.
        go: bool,
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
        /// Where the bytes go. A [`Sink::Handle`] comes beside this message.
        sink: Sink,
        /// The files are kept even if casts did more to numbers than round them.
        falsify: bool,
    },
    /// Stop the running conversion and remove what it wrote.
    Cancel,
    /// About comparing with a second checkpoint.
    Compare(compare::Ask),
    /// Read everything once and tell whether it is sound, also against the manifest that may come
    /// beside this message; with `true` only if all numbers are finite. `None` stops that.
    Verify(Option<bool>),
    /// About the values of tensors.
    Weights(weights::Ask),
    /// About a matrix that is looked at as a picture.
    Looking(looking::Ask),
    /// Open the structure of some of the files that come beside this message, one after the
    /// other, to tell what is wrong with them. Nothing else is open then.
    Look {
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
            Self::Run { .. } => JobKind::Write,
            Self::RunValues { asked, .. } if !asked.is_empty() => JobKind::Scan,
            Self::Measure { go: true } => JobKind::Measure,
            Self::Verify(Some(_)) => JobKind::Verify,
            Self::Weights(weights::Ask::Scan(true)) => JobKind::Scan,
            Self::Weights(weights::Ask::Read(Some(_))) => JobKind::Read,
            Self::Looking(looking::Ask::Overview(Some(_))) => JobKind::Overview,
            Self::Looking(looking::Ask::Cells(..)) => JobKind::Window,
            Self::Looking(looking::Ask::Singular(singular::Ask::Find(Some(_)))) => {
                JobKind::Singular
            }
            Self::Looking(looking::Ask::Take(Some(_))) => JobKind::Take,
            Self::Looking(looking::Ask::Ranked(Some(_))) => JobKind::Rank,
            Self::Compare(compare::Ask::Open { .. }) => JobKind::OpenSecond,
            Self::Compare(compare::Ask::Start { .. }) => JobKind::Compare,
            Self::Compare(compare::Ask::Closer(Some(_))) => JobKind::Closer,
            Self::Compare(compare::Ask::Renames(Some(_))) => JobKind::Renames,
            Self::Inspect { .. } => JobKind::Inspect,
            Self::Values { .. } => JobKind::Values,
            Self::Plan { .. } => JobKind::Plan,
            Self::Share { .. } => JobKind::Share,
            Self::Allow { .. }
            | Self::Summarize { .. }
            | Self::Measure { go: false }
            | Self::Cancel
            | Self::RunValues { .. }
            | Self::Compare(_)
            | Self::Verify(None)
            | Self::Weights(_)
            | Self::Provide(_)
            | Self::Understand(_)
            | Self::Looking(
                looking::Ask::Overview(None)
                | looking::Ask::Singular(_)
                | looking::Ask::Take(None)
                | looking::Ask::Ranked(None),
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

/// What the user agreed to about an address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreed {
    /// How many bytes one action may fetch.
    pub cap: u64,
    /// Whether other servers may be asked that the address leads to.
    pub follow: bool,
    /// How many times the usual may be spent on what is there.
    pub times: u64,
}

/// A file of a drop: where it was, relative to what was dropped, and how long it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileName {
    /// The path relative to what was dropped or chosen, with `/`.
    pub path: String,
    /// Length in bytes.
    pub size: u64,
}

/// Where a conversion's bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sink {
    /// A `Blob` composed of slices where the plan allows it, else a file in the origin's
    /// private file system; the page saves either as a download.
    Download,
    /// A `FileSystemFileHandle` from a save dialog.
    Handle,
}

/// What to convert to, and how. The same words as the command line.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ConvertOptions {
    /// The target's id, as in [`Target::id`].
    pub to: String,
    /// The format version to write, where the target has several.
    pub version: Option<String>,
    /// Whether each name of a tied tensor gets a copy of its own.
    pub untie: bool,
    /// Top-level states to keep; empty keeps all.
    pub states: Vec<String>,
    /// Patterns of keys to keep; empty keeps all.
    pub select: Vec<String>,
    /// Patterns of keys to leave out.
    pub exclude: Vec<String>,
    /// What is taken off the start of every key.
    pub strip_prefix: String,
    /// Replacements in keys, `REGEX=>REPLACEMENT`.
    pub rename: Vec<String>,
    /// What is put before every key.
    pub prefix: String,
    /// Whether names are split at their dots.
    pub nest: bool,
    /// The dtype that floating point tensors are cast to.
    pub cast: Option<String>,
    /// Dtypes for those whose new keys match, `PATTERN=DTYPE`.
    pub casts: Vec<String>,
    /// How datasets are compressed, where the target can.
    pub compress: Option<String>,
    /// How large a file may be before another one begins, where the target can be cut.
    pub shard_size: Option<String>,
    /// Which file the tensors go into whose new keys match, `PATTERN=NAME`, instead of sizes.
    pub shard: Option<Vec<String>>,
    /// Whether tensors are named after objects, with a graph of them, where the target can.
    pub object_graph: bool,
    /// Whether a file that names the latest checkpoint of its folder is written, too.
    pub state_file: bool,
    /// The name of the file to write.
    pub name: String,
    /// What is done instead of a conversion; of the rest, only the name counts then.
    pub rewrite: Option<Rewrite>,
    /// From which model to which, and what is known of it.
    pub family: family::Asked,
}

/// What a checkpoint is rewritten as in its own format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Rewrite {
    /// Another format version.
    Upgrade {
        /// Which.
        to: String,
    },
    /// With its spec repaired.
    Fix {
        /// Whether it becomes the newest format version, too.
        upgrade: bool,
    },
    /// With the state of a dataloader, from the files that came with it.
    Dataloader {
        /// Whether the dataloader streams shards; else it picks samples by their number.
        iterable: bool,
        /// The seed of the order of samples, as it was typed.
        seed: String,
        /// The format version to write.
        to: String,
    },
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
    Shared(Box<Shared>),
    /// The answer to [`ToWorker::Summarize`]; the page saves it.
    Summary {
        /// The name of the file.
        name: String,
        /// What is in it.
        text: String,
    },
    /// All values are being read.
    Measuring {
        /// Bytes of tensors that were read.
        done: u64,
        /// All of them.
        total: u64,
    },
    /// The answer to [`ToWorker::Measure`]: whether it was not stopped, or why it failed.
    Measured(Result<bool, ErrorText>),
    /// Everything about a row.
    Inspected(Inspected),
    /// Values of a tensor.
    Valued(Values),
    /// The first answer to [`ToWorker::Plan`], before the files are planned.
    Family {
        /// The request it answers.
        request: u32,
        /// Which model it is, and what becomes of it; nothing for what is no conversion.
        family: Option<Box<family::Told>>,
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
    /// an array; for [`Sink::Download`] the page saves them.
    Done(Done),
    /// A conversion ended before it was complete; nothing is left behind.
    Stopped {
        /// `None` if it was cancelled.
        error: Option<ErrorText>,
    },
    /// About comparing with a second checkpoint.
    Compare(compare::Told),
    /// About verifying.
    Verify(verify::Told),
    /// About the values of tensors.
    Weights(weights::Told),
    /// About a matrix that is looked at as a picture.
    Looking(looking::Told),
    /// The answer to [`ToWorker::Understand`].
    Understood(Box<understanding::Understood>),
    /// A file of [`ToWorker::Look`] was opened, or can't be.
    Looked(Looked),
    /// About the values of a run folder.
    RunValues(RunValues),
    /// The job is over; what came of it was told before.
    Ended(Ended),
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

/// How far reading the values of a run folder is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum RunValues {
    /// Bytes of files, all of them, and milliseconds.
    Now(u64, u64, f64),
    /// A file was read: its place in what was dropped, what is wrong with it, and by state and by role
    /// its groups.
    Read(u32, String, [Vec<RunGroup>; 2]),
    /// All were read, or it was stopped.
    Ended,
}

/// A group of tensors of a checkpoint: its name; tensors, values, those that are NaN, infinite; norm,
/// mean, deviation.
pub type RunGroup = (String, [u64; 4], [f64; 3]);

/// What opening a file of a run folder gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Looked {
    /// Its place in what was dropped.
    pub file: u32,
    /// What is wrong with it; empty for nothing.
    pub wrong: String,
    /// Its top-level states.
    pub states: Vec<String>,
}

/// An open checkpoint.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Opened {
    /// The name of the file that was opened.
    pub name: String,
    /// Which of the files of [`ToWorker::Open`] it is.
    pub main: u32,
    /// The others that are checkpoints by themselves, as indices into the same list.
    pub others: Vec<u32>,
    /// The format's id; a target of the same id writes the same format.
    pub format_id: String,
    /// The format's name, as in "Cerebras HDF5".
    pub format: String,
    /// Its version, if the file says.
    pub version: String,
    /// Who wrote it, if the file says.
    pub producer: String,
    /// Length of all files that the checkpoint is made of.
    pub size: u64,
    /// One row per leaf, in file order.
    pub rows: PackedRows,
    /// What should be known about it.
    pub findings: Vec<Finding>,
    /// What it can be rewritten as.
    pub offers: Vec<Offer>,
    /// Formats it can be converted to.
    pub targets: Vec<Target>,
    /// Names of files that are missing: with them the checkpoint would be whole.
    pub missing: Vec<String>,
    /// Milliseconds from the message to the answer.
    pub millis: f64,
    /// Bytes read to open it.
    pub read: u64,
    /// Reads made to open it.
    pub calls: u64,
    /// How many files were looked at to find it among others, and the bytes that this read.
    pub looked: (u64, u64),
    /// Bytes of tensors and texts that it unfolds to, and those that the files have them in, if that
    /// is far more: the page asks before it goes through them.
    pub unfolds: Option<(u64, u64)>,
    /// True if this is a summary from a link: there are no files, and no values.
    pub summary: bool,
    /// Parameters of the model alone, where it is known and there is more than it.
    pub model_params: Option<u64>,
}

/// What has been fetched of a remote checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fetched {
    /// The server.
    pub host: String,
    /// The server that it led to; may be empty.
    pub via: String,
    /// True if the server gave a file only as a whole.
    pub whole: bool,
    /// Bytes fetched.
    pub bytes: u64,
    /// Requests made.
    pub requests: u64,
}

/// How grave a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Severity {
    /// Would run or reach something if loaded by the original library.
    Danger,
    /// Would call code that is not known, if loaded by the original library.
    UnknownCode,
    /// Data is missing, damaged or unfinished.
    Damage,
    /// The checkpoint may not be what it seems.
    Warning,
    /// Worth knowing.
    Note,
}

impl Severity {
    /// All of them, the gravest first.
    pub const ALL: [Self; 5] =
        [Self::Danger, Self::UnknownCode, Self::Damage, Self::Warning, Self::Note];
}

/// Something about the checkpoint that its user should know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// How grave.
    pub severity: Severity,
    /// A plain sentence.
    pub title: String,
    /// What it means.
    pub text: String,
    /// What to do about it, if anything.
    pub advice: String,
    /// The call that a pickle would have made: label and text.
    pub call: Vec<(String, String)>,
    /// Where it was seen: file and offset, or a key; may be empty.
    pub place: String,
    /// Keys that it is about, as far as they are rows.
    pub keys: Vec<String>,
    /// True if a file that is not open would settle it.
    pub missing: bool,
}

/// Something that can be done with the checkpoint as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// What is done.
    pub rewrite: Rewrite,
    /// What its button says.
    pub label: String,
    /// What it gives, in a sentence or two.
    pub text: String,
    /// What it changes, a line each, as far as that is known.
    pub lines: Vec<String>,
    /// The finding that it settles, as an index of [`Opened::findings`].
    pub finding: Option<u32>,
}

/// A format to convert to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// What the command line calls it.
    pub id: String,
    /// What people call it, as in "PyTorch .pt".
    pub name: String,
    /// File extension without the dot.
    pub extension: String,
    /// What it holds and who reads it, in a sentence.
    pub about: String,
    /// Versions that can be written, the default first; empty if there is one only.
    pub versions: Vec<Choice>,
    /// Compressions, the default first; empty if there are none.
    pub compressions: Vec<Choice>,
    /// Sizes of the files that it can be cut into, one file first; empty if it can't be.
    pub shards: Vec<Choice>,
    /// Whether it can have an object graph and a state file.
    pub objects: bool,
    /// Dtypes that floating point tensors can be cast to.
    pub casts: Vec<Choice>,
}

/// One of a few values to choose from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// What the command line calls it; empty is the default.
    pub id: String,
    /// What the page calls it.
    pub name: String,
}

/// Everything about a row.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Inspected {
    /// The row.
    pub row: u32,
    /// The path, as Python would index it.
    pub path: String,
    /// Of an entry of an optimizer's state: the key of its parameter, and how that is known.
    pub parameter: Option<(String, String)>,
    /// Python that reads it: library and code, the usual one first.
    pub code: Vec<(String, String)>,
    /// Facts: what it is and where it lies.
    pub facts: Vec<Fact>,
    /// The whole value, where it is text that the table cuts.
    pub text: Option<String>,
    /// Attributes as the file has them.
    pub attributes: Vec<(String, String)>,
    /// Statistics of a tensor in a summary, if it has them.
    pub statistics: Vec<Fact>,
    /// What its values are like, if they were read.
    pub values: Option<Box<weights::TensorValues>>,
    /// How many bytes would be read for that, if they were not.
    pub unread: Option<u64>,
    /// True if those are on a server.
    pub remote: bool,
    /// True if [`ToWorker::Values`] can be asked.
    pub has_values: bool,
}

/// A labelled fact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    /// What it is.
    pub label: String,
    /// The value.
    pub value: String,
    /// An aside, shown dimmed.
    pub note: String,
}

/// Values of a tensor, formatted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Values {
    /// The row.
    pub row: u32,
    /// The index of the first, in C order.
    pub start: u64,
    /// The values; or why they can't be read.
    pub values: Result<Vec<String>, ErrorText>,
}

/// What a conversion will do, exactly.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Planned {
    /// The names of the files that it writes.
    pub names: Vec<String>,
    /// Size in bytes.
    pub size: u64,
    /// False if compression decides, so that the size is a bound.
    pub exact: bool,
    /// Bytes made by the writer: headers, pickles, indexes.
    pub made: u64,
    /// Bytes that are spans of the source, copied unchanged.
    pub copied: u64,
    /// Bytes that are decoded, gathered or cast on the way.
    pub computed: u64,
    /// What happens to the weights, in a few words.
    pub weights: String,
    /// Tensors in the output.
    pub tensors: u64,
    /// Leaves in the output.
    pub keys: u64,
    /// The output in order, as runs of one dtype: its name and bytes; no name for structure.
    pub runs: Vec<(String, u64)>,
    /// What the target can't hold.
    pub losses: Vec<Loss>,
    /// Things that change without loss.
    pub notes: Vec<String>,
    /// Numbers are cast to a dtype that holds fewer.
    pub narrows: bool,
    /// True if the output is made bytes and spans only, so that no weight is moved.
    pub zero_copy: bool,
    /// What becomes of the keys.
    pub preview: Preview,
    /// What [`ConvertOptions::rewrite`] changes, a line each.
    pub changes: Vec<String>,
    /// The command that does the same.
    pub command: String,
}

/// What becomes of the keys.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Preview {
    /// The first of those that change: renamed and cast ones, then those that are left out.
    pub rows: Vec<KeyChange>,
    /// Keys that are other ones afterwards, or whose dtype is.
    pub changed: u64,
    /// Keys that are other ones afterwards.
    pub renamed: u64,
    /// Keys whose dtype is another one afterwards.
    pub cast: u64,
    /// Keys that are left out.
    pub left_out: u64,
    /// Keys in the source.
    pub total: u64,
    /// Keys that the rows stand for.
    pub shown: u64,
}

/// What becomes of a key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeyChange {
    /// The key in the source.
    pub old: String,
    /// The key in the output; `None` if it is left out.
    pub new: Option<String>,
    /// The dtype in the output, if it is another one.
    pub dtype: Option<String>,
    /// For how many keys that differ in numbers only it stands.
    pub times: u64,
}

/// Something that the target can't hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    /// A sentence.
    pub title: String,
    /// Why, and what becomes of it.
    pub why: String,
}

/// A conversion under way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Running {
    /// Bytes written.
    pub done: u64,
    /// Bytes in all.
    pub total: u64,
    /// Milliseconds since it began.
    pub millis: f64,
    /// The key that is being written.
    pub key: String,
}

/// A complete conversion.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// The names of the files.
    pub names: Vec<String>,
    /// Files of text that belong to them, names and texts: the page saves them, too.
    pub texts: Vec<(String, String)>,
    /// Their length together.
    pub bytes: u64,
    /// Milliseconds it took.
    pub millis: f64,
    /// How it was written.
    pub how: How,
    /// What casts did, a line for each pair of dtypes.
    pub casts: Vec<String>,
    /// What is wrong with it, where it was opened again and is not what was planned: only of a file
    /// that can't be taken back.
    pub read_back: Option<ErrorText>,
}

/// How a conversion was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    /// A `Blob` of slices of the source: the browser copies them when it saves.
    Composed,
    /// The origin's private file system, then a download.
    Private,
    /// The file that the save dialog chose.
    Saved,
}

/// How the title of the error begins that says that casts did more than round: the page asks
/// whether that is to be kept.
pub const FALSIFIED: &str = "Casting falsifies numbers";

/// What kind of an error it is: four texts with four next steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ErrorKind {
    /// It is a file of another kind.
    NotACheckpoint,
    /// The bytes are not what the format says.
    Damaged,
    /// The format allows it, this program does not know it.
    Unsupported,
    /// More than the limits allow.
    Limit,
    /// More than one action may fetch.
    FetchCap,
    /// It would lose data.
    Refused,
    /// The browser could not read or write.
    Io,
}

/// An error as a user reads it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorText {
    /// What kind.
    pub kind: ErrorKind,
    /// What is wrong, as a sentence.
    pub title: String,
    /// More about it.
    pub text: String,
    /// Where, if known: file and offset.
    pub place: String,
    /// Lines of the file, where they say what it is.
    pub lines: Vec<String>,
    /// What to do next: a sentence and a command, either may be empty.
    pub next: Vec<(String, String)>,
}
