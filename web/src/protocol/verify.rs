//! Messages about verifying the open checkpoint.

use serde::{Deserialize, Serialize};

use super::conversion::JobProgress;
use super::error::ErrorText;
use super::finding::Severity;

/// Replies from the worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum VerifyReply {
    Progress(JobProgress),
    /// Everything was read, or can't be. Not sent if the page stopped it.
    Ended(Result<Box<VerifyReport>, ErrorText>),
}

/// The result, in the words of the command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VerifyReport {
    /// Whether there is no error.
    pub sound: bool,
    /// The severity of the findings.
    pub grade: Severity,
    /// The result as a sentence.
    pub verdict: String,
    /// Checks made: a label and a text for each kind.
    pub checks: Vec<(String, String)>,
    /// Findings: severity, a word for it, the key, the details.
    pub lines: Vec<(Severity, String, String, String)>,
    /// Further lines of the report.
    pub more: Vec<String>,
    /// The equivalent command.
    pub command: String,
    /// The output of that command with `--json`.
    pub report: String,
    /// Bytes checked.
    pub bytes: u64,
    /// Milliseconds spent.
    pub millis: f64,
}
