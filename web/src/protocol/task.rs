//! The replies to every request that takes long.

use serde::{Deserialize, Serialize};

use crate::protocol::error::ErrorText;

/// A reply to a request that takes long; the last three end it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum TaskUpdate<T> {
    /// Progress, and the result so far if it changed.
    Progress(JobProgress, Option<Box<T>>),
    Done(Box<T>),
    Failed(ErrorText),
    /// The page stopped it.
    Stopped,
}

/// Progress of a job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JobProgress {
    /// Bytes processed, or operations of a computation.
    pub done: u64,
    pub total: u64,
    /// Milliseconds since the start.
    pub millis: f64,
    /// The key being written; empty for other jobs.
    pub key: String,
}

impl JobProgress {
    /// Returns the progress in percent.
    pub fn percent(&self) -> f64 {
        self.done as f64 / self.total.max(1) as f64 * 100.0
    }
}
