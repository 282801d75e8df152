//! What page and worker say about a conversion: what is asked for, its plan, and how far it is.

use serde::{Deserialize, Serialize};

use super::error::ErrorText;
use super::family;
use super::rewrite::Rewrite;

/// Where a conversion's bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SaveTo {
    /// A `Blob` composed of slices where the plan allows it, else a file in the origin's
    /// private file system; the page saves either as a download.
    Download,
    /// A `FileSystemFileHandle` from a save dialog.
    Handle,
}

/// What to convert to, and how. The same words as the command line.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ConvertOptions {
    /// The target's id, as in [`Target::id`](super::opened::Target::id).
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
    pub family: family::FamilyRequest,
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
    /// What the browser holds, then a download: it has no private file system here.
    Held,
    /// The file that the save dialog chose.
    Saved,
}

/// How the title of the error begins that says that casts did more than round: the page asks
/// whether that is to be kept.
pub const FALSIFIED: &str = "Casting falsifies numbers";
