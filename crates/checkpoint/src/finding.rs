//! Findings: what a reader noticed and the user should know.

use serde::{Deserialize, Serialize};

/// Severity of a [`Finding`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    /// Worth knowing; nothing is wrong.
    Note,
    /// Unusual: check before you trust the file.
    Warning,
    /// Data is missing, damaged or unfinished: the checkpoint is not complete. Writing such a
    /// checkpoint is a loss, since the copy would look complete.
    Damage,
    /// Loading the file with the usual library would call code that Statelens doesn't know.
    #[serde(rename = "unknown code")]
    UnknownCode,
    /// Loading the file with the usual library would do harm.
    Danger,
}

impl Grade {
    /// All grades, the worst first.
    pub const ALL: [Self; 5] =
        [Self::Danger, Self::UnknownCode, Self::Damage, Self::Warning, Self::Note];
}

/// An observation of a reader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Severity.
    pub grade: Grade,
    /// A plain sentence without a full stop.
    pub title: String,
    /// The reason, in whole sentences; may be empty.
    pub detail: String,
    /// File and offset, or the key; may be empty.
    pub place: String,
    /// Advice in whole sentences; may be empty.
    pub advice: String,
    /// Names of missing files, if the finding is about them: with these the checkpoint would be
    /// complete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// The call that a pickle requests, if the finding is about one. It was not made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<LoaderCall>,
    /// Whether the contents of the missing files are unknown, so that even their keys are missing
    /// from the list.
    #[serde(skip)]
    pub unlisted: bool,
    /// Whether the format's usual library refuses the file because of this. If so, verification
    /// fails.
    #[serde(skip)]
    pub refused: bool,
    /// Whether a copy omits what the finding is about, which makes writing one a loss.
    #[serde(skip)]
    pub left_out: bool,
}

impl Finding {
    /// Creates a finding with only a title.
    pub fn new(grade: Grade, title: impl Into<String>) -> Self {
        Self {
            grade,
            title: title.into(),
            detail: String::new(),
            place: String::new(),
            advice: String::new(),
            call: None,
            missing: Vec::new(),
            unlisted: false,
            refused: false,
            left_out: false,
        }
    }

    /// Sets the reason.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// Sets the place.
    #[must_use]
    pub fn place(mut self, place: impl Into<String>) -> Self {
        self.place = place.into();
        self
    }

    /// Sets the advice.
    #[must_use]
    pub fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = advice.into();
        self
    }

    /// Sets the names of the missing files.
    #[must_use]
    pub fn missing(mut self, files: Vec<String>) -> Self {
        self.missing = files;
        self
    }

    /// Marks that the format's usual library refuses the file.
    #[must_use]
    pub fn refused(mut self) -> Self {
        self.refused = true;
        self
    }

    /// Marks that a copy omits what the finding is about.
    #[must_use]
    pub fn left_out(mut self) -> Self {
        self.left_out = true;
        self
    }

    /// Sets whether the keys in the missing files are unknown.
    #[must_use]
    pub fn unlisted(mut self, unlisted: bool) -> Self {
        self.unlisted = unlisted;
        self
    }
}

/// A call that a pickle requests of its loader. Statelens never makes one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoaderCall {
    /// Dotted module, e.g. `os`.
    pub module: String,
    /// Name in the module, e.g. `system`.
    pub name: String,
    /// The arguments as short text; empty if the name is only referenced, not called.
    pub arguments: String,
}
