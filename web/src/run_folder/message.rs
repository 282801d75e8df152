//! Messages about a run folder.

use serde::{Deserialize, Serialize};
use statelens_compare::runs::GroupValues;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileValues {
    /// Its index in the drop.
    pub file: u32,
    /// The problem found; may be empty.
    pub problem: String,
    /// Its groups by state and by role.
    pub groups: [Vec<GroupValues>; 2],
}
