//! Messages about the share sheet.

use serde::{Deserialize, Serialize};
use statelens_describe::share::{LinkOptions, LinkParts};

/// A summary that was made but not yet shared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SharedSummary {
    /// The options it was made with.
    pub options: LinkOptions,
    /// The link from its `#` on, to append to the page's address; or why it can't be made.
    pub link: Result<String, String>,
    /// Characters after the `#`, even if that is too long for a link.
    pub length: u64,
    /// Lengths of its parts.
    pub parts: LinkParts,
    /// Whether statistics were computed.
    pub measured: bool,
    /// Bytes of the HTML, Markdown and JSON files.
    pub sizes: [u64; 3],
    /// A picture to paste, as SVG.
    pub picture: String,
    /// The first lines of the list that the link holds, folded.
    pub lines: Vec<SharedLine>,
    /// The number of further lines.
    pub more: u64,
    /// The fingerprint of the structure.
    pub structure: String,
    /// The fingerprint of the content, if all of it was read.
    pub content: Option<String>,
}

/// A line of the list that a link holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SharedLine {
    /// The key, with ranges if the line represents several.
    pub key: String,
    /// The number of leaves that it represents.
    pub times: u64,
    /// The dtype and shape, or the kind.
    pub what: String,
    /// The standard deviation, or the smallest and the largest of several; empty if the link does
    /// not hold it.
    pub std: String,
}

/// The file formats of a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SummaryKind {
    /// A single page.
    Html,
    Markdown,
    Json,
}
