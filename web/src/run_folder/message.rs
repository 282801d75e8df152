//! Messages about a run folder.

use serde::{Deserialize, Serialize};

/// The values of a file of a run folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileValues {
    /// Its index in the drop.
    pub file: u32,
    /// The problem found; may be empty.
    pub problem: String,
    /// Its groups by state and by role.
    pub groups: [Vec<RunGroup>; 2],
}

/// A group of tensors of a checkpoint: name; numbers of tensors, missing tensors, values, NaNs and
/// infinities; norm, mean and deviation.
pub type RunGroup = (String, [u64; 5], [f64; 3]);
