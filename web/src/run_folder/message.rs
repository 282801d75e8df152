//! Messages about a run folder.

use serde::{Deserialize, Serialize};
use statelens_compare::runs::GroupValues;

use crate::open::message::FileName;

/// Reads all values of some of the files sent with this message, one after the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunValuesRequest {
    pub files: Vec<FileName>,
    /// Indices of the files to read.
    pub requested: Vec<u32>,
}

/// The values of files read since the last message.
pub type RunValues = Vec<FileValues>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileValues {
    /// Its index in the drop.
    pub file: u32,
    /// The problem found; may be empty.
    pub problem: String,
    /// Its groups by state and by role.
    pub groups: [Vec<GroupValues>; 2],
}
