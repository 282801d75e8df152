//! The share sheet: what is asked for, and what the worker makes of it.

use serde::{Deserialize, Serialize};

/// How keys are told in a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum LinkKeys {
    /// As they are.
    #[default]
    Plain,
    /// Each part as four letters.
    Coded,
    /// The position stands for the key.
    Hidden,
}

/// What goes into a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareOptions {
    /// How keys are told.
    pub keys: LinkKeys,
    /// Values that are not tensors.
    pub values: bool,
    /// Findings.
    pub findings: bool,
    /// Statistics of tensors, once they are computed.
    pub statistics: bool,
}

impl Default for ShareOptions {
    fn default() -> Self {
        Self { keys: LinkKeys::Plain, values: false, findings: true, statistics: false }
    }
}

/// A summary, made but not given away.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SharedSummary {
    /// What it was made for.
    pub options: ShareOptions,
    /// What follows the page's address, from the `#` on; or why there is none.
    pub link: Result<String, String>,
    /// Characters behind the `#`, whether it is a link or too long for one.
    pub length: u64,
    /// The same of its parts: head, keys, statistics, findings, values.
    pub parts: [u64; 5],
    /// Whether statistics were computed.
    pub measured: bool,
    /// Bytes of the HTML, Markdown and JSON.
    pub sizes: [u64; 3],
    /// The beginning of the list that the link holds, folded.
    pub lines: Vec<SharedLine>,
    /// Lines that are not in this beginning.
    pub more: u64,
    /// The structure's fingerprint.
    pub structure: String,
    /// The content's fingerprint, if it was read.
    pub content: Option<String>,
}

/// A line of what a link holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SharedLine {
    /// The key, with ranges where it stands for several.
    pub key: String,
    /// How many leaves it stands for.
    pub times: u64,
    /// The dtype and shape, or the kind.
    pub what: String,
    /// The standard deviation, or the least and the largest of several; empty if not in the link.
    pub std: String,
}

/// A file to save.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SummaryKind {
    /// One page.
    Html,
    /// Markdown.
    Markdown,
    /// JSON.
    Json,
}
