//! Messages about opening a checkpoint, and the description of an open one.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use statelens_checkpoint::Finding;
use statelens_describe::info::FormatName;

use crate::pieces::message::StoragePlaces;
use crate::read_as::message::ReadAs;
use crate::repair::message::RewriteOffer;
use crate::rows::PackedRows;

/// What the user has agreed to about an address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchConsent {
    pub cap: u64,
    /// Whether requests may follow redirects to other servers.
    pub follow: bool,
    /// Factor by which the default limits are raised.
    pub times: u64,
    /// The dtypes of arrays that are stored without one.
    pub read_as: ReadAs,
}

/// A file of a drop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileName {
    /// The path relative to the dropped or chosen folder, with `/`.
    pub path: String,
    pub size: u64,
}

/// A member of an archive that is stored without compression.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredMember {
    /// Its name in the archive.
    pub name: String,
    /// The first of its bytes in the archive.
    pub offset: u64,
    /// The number of its bytes.
    pub size: u64,
}

/// A checkpoint found among several files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FoundCheckpoint {
    /// The file to open it by, as an index into the files.
    pub main: u32,
    /// Its name: the path of the file, or of a set of shards without their numbers.
    pub name: String,
    /// The files that it consists of.
    pub members: Vec<u32>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct OpenedCheckpoint {
    /// The name of the file that was opened.
    pub name: String,
    /// The index of that file in [`ToWorker::Open`](crate::protocol::ToWorker::Open).
    pub main: u32,
    /// The other files that are checkpoints by themselves, as indices into the same list.
    pub others: Vec<u32>,
    /// The format's id; if it can be written, that of its [`Writing`](statelens_formats::Writing).
    pub format_id: String,
    /// Whether the format may separate the segments of keys with slashes.
    pub slash_keys: bool,
    /// The format, its version and the program that wrote it.
    pub format: FormatName,
    /// The labelled facts that the inspector shows, without counts of rows.
    pub facts: Vec<(String, String)>,
    /// Total length of its files in bytes.
    pub size: u64,
    /// The number of files that hold its tensors, if there are several; otherwise 0.
    pub shards: u64,
    /// The files or ranks that hold its tensors.
    pub places: StoragePlaces,
    /// The number of quantised weights.
    pub quantised: u64,
    /// The number of them in blocks, which no target holds: they become numbers in any conversion.
    pub blocks: u64,
    /// Whether tensors hold several layers, so that `--unstack` applies.
    pub stacked: bool,
    /// One row per leaf, in file order.
    pub rows: PackedRows,
    pub findings: Vec<Finding>,
    /// Places of findings that are keys of rows.
    pub finding_keys: HashSet<String>,
    /// Possible rewrites in its own format.
    pub offers: Vec<RewriteOffer>,
    /// Names of files that are missing from the checkpoint.
    pub missing: Vec<String>,
    /// Milliseconds from the request to the reply.
    pub millis: f64,
    /// Bytes read while opening.
    pub read: u64,
    /// Reads made while opening.
    pub calls: u64,
    /// The number of files searched for checkpoints, and the bytes read for that.
    pub searched: (u64, u64),
    /// Bytes of tensors and texts when unpacked, and bytes stored in the files, if the former is
    /// far larger: the page then asks before it reads all values.
    pub unfolds: Option<(u64, u64)>,
    /// True if this is a summary from a link, without files and values.
    pub summary: bool,
    /// Parameters of the model: tied tensors once, without buffers and optimizer.
    pub model_params: u64,
}

impl OpenedCheckpoint {
    /// Returns the format with its version, and the program that wrote the file.
    pub fn badge(&self) -> String {
        let (format, producer) = (self.format.text(), &self.format.producer);
        if producer.is_empty() { format } else { format!("{format} \u{b7} {producer}") }
    }
}

/// Bytes and requests of a remote checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FetchStats {
    pub host: String,
    /// The server that it redirected to; may be empty.
    pub via: String,
    /// True if the server sent a file only as a whole.
    pub without_ranges: bool,
    pub bytes: u64,
    pub requests: u64,
}
