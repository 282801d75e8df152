//! What page and worker say about verifying the open checkpoint.

use serde::{Deserialize, Serialize};

use super::conversion::Running;
use super::error::ErrorText;
use super::finding::Severity;

/// What the worker answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum VerifyReply {
    /// Everything is being read.
    Progress(Running),
    /// Everything was read, or can't be. Nothing is said of what the page stopped.
    Ended(Result<Box<Verified>, ErrorText>),
}

/// What came of it, in the words of the command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verified {
    /// Whether nothing is wrong.
    pub sound: bool,
    /// How much what was found matters.
    pub grade: Severity,
    /// The answer as a sentence.
    pub verdict: String,
    /// What was looked at: a label and a text of each kind.
    pub looked_at: Vec<(String, String)>,
    /// What was found: how grave it is, a word for it, the key, what it is.
    pub lines: Vec<(Severity, String, String, String)>,
    /// What the report has besides.
    pub more: Vec<String>,
    /// The command that does the same.
    pub command: String,
    /// What that prints with `--json`.
    pub report: String,
    /// Bytes that were looked at.
    pub bytes: u64,
    /// Milliseconds that it took.
    pub millis: f64,
}
