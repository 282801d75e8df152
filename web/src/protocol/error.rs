//! Errors, as the page shows them.

use serde::{Deserialize, Serialize};

/// What kind of an error it is: four texts with four next steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ErrorKind {
    /// It is a file of another kind.
    NotACheckpoint,
    /// The bytes are not what the format says.
    Damaged,
    /// The format allows it, this program does not know it.
    Unsupported,
    /// More than the limits allow.
    Limit,
    /// More than one action may fetch.
    FetchCap,
    /// It would lose data.
    Refused,
    /// The browser could not read or write.
    Io,
}

/// An error as a user reads it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorText {
    /// What kind.
    pub kind: ErrorKind,
    /// What is wrong, as a sentence.
    pub title: String,
    /// More about it.
    pub text: String,
    /// Where, if known: file and offset.
    pub place: String,
    /// Lines of the file, where they say what it is.
    pub lines: Vec<String>,
    /// What to do next: a sentence and a command, either may be empty.
    pub next: Vec<(String, String)>,
}

impl ErrorText {
    /// What is said when page and worker are of different versions.
    #[must_use]
    pub fn misfit() -> Self {
        Self {
            kind: ErrorKind::Unsupported,
            title: "The page and its reader do not fit together.".into(),
            text: "One of them is older than the other. Reload the page.".into(),
            place: String::new(),
            lines: Vec::new(),
            next: Vec::new(),
        }
    }
}
