//! What page and worker say about a run folder.

use serde::{Deserialize, Serialize};

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

/// A group of tensors of a checkpoint: its name; tensors, those that are missing, values, those that are NaN, infinite; norm,
/// mean, deviation.
pub type RunGroup = (String, [u64; 5], [f64; 3]);

/// What opening a file of a run folder gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenCheck {
    /// Its place in what was dropped.
    pub file: u32,
    /// What is wrong with it; empty for nothing.
    pub wrong: String,
    /// Its top-level states.
    pub states: Vec<String>,
}
