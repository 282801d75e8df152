//! Errors, as the page shows them.

use serde::{Deserialize, Serialize};

/// The code of the error for casts that change numbers by more than rounding.
pub const FALSIFIED: &str = "falsified";

/// The code of errors of writing, as opposed to reading.
pub const UNWRITTEN: &str = "unwritten";

/// The kind of an error, which decides its next steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ErrorKind {
    /// A file of another kind.
    NotACheckpoint,
    /// The bytes violate the format.
    Damaged,
    /// The format allows it, but Statelens does not support it.
    Unsupported,
    /// Over the limits.
    Limit,
    /// Over the number of bytes that one action may fetch.
    FetchCap,
    /// It would lose data.
    Refused,
    /// The Hugging Face Hub has no such files, or refuses access to them.
    Hub,
    /// Casts changed numbers by more than rounding; the user may keep the result.
    Falsified,
    /// The browser could not read.
    Io,
    /// The browser could not write.
    Unwritten,
}

/// An error, as a user reads it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorText {
    pub kind: ErrorKind,
    /// The problem, as a sentence.
    pub title: String,
    /// Details.
    pub text: String,
    /// The file; empty if it is not known.
    pub file: String,
    /// The offset in the file.
    pub offset: Option<u64>,
    /// The first lines of the file, where they show what it is.
    pub lines: Vec<String>,
    /// What to do next: pairs of a sentence and a command, either of which may be empty.
    pub next: Vec<(String, String)>,
}

impl ErrorText {
    /// Returns the error for a page and worker of different versions.
    pub fn misfit() -> Self {
        Self {
            kind: ErrorKind::Unsupported,
            title: "The page and its worker have different versions.".into(),
            text: "Reload the page.".into(),
            file: String::new(),
            offset: None,
            lines: Vec::new(),
            next: Vec::new(),
        }
    }
}
