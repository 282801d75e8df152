//! The messages between the worker and its assistants, which share its long passes over files on disk.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::compare::message::CompareOptions;
use crate::open::message::FileName;
use crate::read_as::message::ReadAs;

/// The name of a worker that is an assistant.
pub const ASSISTANT: &str = "assistant";

/// Messages from the worker to an assistant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToAssistant {
    /// Open the files sent with this message, and prepare a pass.
    Begin {
        /// The checkpoints that the pass reads. Their files were sent in this order.
        sides: Vec<AssistedSide>,
        pass: AssistedPass,
    },
    /// Process parts of the pass: the first, and the one after the last.
    Parts(u32, u32),
}

/// A checkpoint of files on disk, and how it was opened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AssistedSide {
    pub files: Vec<FileName>,
    /// The index of the file that was opened.
    pub main: u32,
    /// Factor by which the default limits were raised.
    pub times: u64,
    pub read_as: ReadAs,
}

/// A pass that assistants share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum AssistedPass {
    /// The statistics of these tensors, by their ids.
    Scan(Vec<u32>),
    /// Reading everything.
    Verify,
    /// Comparing two checkpoints.
    Compare(Box<CompareOptions>),
}

/// Messages from an assistant to the worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromAssistant {
    /// The program is loaded.
    Loaded,
    /// The number of bytes processed of the requested parts that begin with `from`.
    Progress { from: u32, bytes: u64 },
    /// The results of the requested parts that begin with `from`, and the SHA-256 of tensors by their
    /// ids.
    Parts { from: u32, found: Vec<ByteBuf>, hashes: Vec<(u32, String)> },
    /// A part could not be processed, or the files could not be opened.
    Failed,
}
