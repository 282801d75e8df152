//! Messages about a run folder.

use serde::{Deserialize, Serialize};

/// Progress of reading the values of a run folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum RunValues {
    /// Bytes of files read, bytes in total, and milliseconds.
    Now(u64, u64, f64),
    /// A file was read: its index in the drop, the problem found, and its groups by state and
    /// by role.
    Read(u32, String, [Vec<RunGroup>; 2]),
    /// All files were read, or reading was stopped.
    Ended,
}

/// A group of tensors of a checkpoint: name; numbers of tensors, missing tensors, values, NaNs and
/// infinities; norm, mean and deviation.
pub type RunGroup = (String, [u64; 5], [f64; 3]);

/// The result of opening a file of a run folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenCheck {
    /// Its index in the drop.
    pub file: u32,
    /// The problem found; may be empty.
    pub problem: String,
    /// Its top-level states.
    pub states: Vec<String>,
}
