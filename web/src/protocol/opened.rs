//! What page and worker say about opening a checkpoint, and what is told of an open one.

use serde::{Deserialize, Serialize};

use super::finding::Finding;
use super::rewrite::Offer;
use crate::rows::PackedRows;

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

/// A checkpoint that was found among files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FoundCheckpoint {
    /// The file that opens it, as an index into the files.
    pub main: u32,
    /// What it is called: the path of the file, or of a set of shards without their numbers.
    pub name: String,
    /// The files that it consists of.
    pub members: Vec<u32>,
}

/// An open checkpoint.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Opened {
    /// The name of the file that was opened.
    pub name: String,
    /// Which of the files of [`ToWorker::Open`](super::ToWorker::Open) it is.
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
    /// The number of its files of tensors, if it is cut into several.
    pub shards: u64,
    /// One row per leaf, in file order.
    pub rows: PackedRows,
    /// What should be known about it.
    pub findings: Vec<Finding>,
    /// What it can be rewritten as.
    pub offers: Vec<Offer>,
    /// Formats it can be converted to.
    pub targets: Vec<TargetFormat>,
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
    /// Parameters of the model: tied tensors once, without buffers and optimizer.
    pub model_params: u64,
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

/// A format to convert to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TargetFormat {
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
