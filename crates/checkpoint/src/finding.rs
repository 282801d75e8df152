//! Findings: what a reader noticed and the user should know.

use serde::{Deserialize, Serialize};

use crate::{Advice, Setting};

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

/// A subject of a [`Finding`] that code treats in a special way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FindingKind {
    /// Any other subject.
    #[default]
    Other,
    /// Missing files whose contents are unknown, so that even their keys are missing from the list.
    UnlistedFiles,
    /// A different file under the name of a missing one.
    WrongFile,
    /// Values that a Cerebras file lists but does not have.
    MissingValues,
    /// The mark of an incomplete source; the detail is the text of the mark.
    IncompleteSource,
    /// A part of the source that a copy omits, which makes writing one a loss. A note needs no
    /// consent.
    LeftOut,
    /// Arrays without a dtype.
    Untyped,
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
    /// Advice; may be empty.
    pub advice: Advice,
    /// Names of missing files, if the finding is about them: with these the checkpoint would be
    /// complete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// The call that a pickle requests, if the finding is about one. It was not made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<LoaderCall>,
    /// The subject, if code treats it in a special way.
    #[serde(skip)]
    pub kind: FindingKind,
    /// Whether the format's usual library refuses the file because of this, or may load other
    /// values. If so, verification fails.
    #[serde(skip)]
    pub refused: bool,
}

impl Finding {
    /// Creates a finding with only a title.
    pub fn new(grade: Grade, title: impl Into<String>) -> Self {
        Self {
            grade,
            title: title.into(),
            detail: String::new(),
            place: String::new(),
            advice: Advice::default(),
            call: None,
            missing: Vec::new(),
            kind: FindingKind::Other,
            refused: false,
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
    pub fn advice(mut self, advice: impl Into<Advice>) -> Self {
        self.advice = advice.into();
        self
    }

    /// Replaces the settings in the advice with the front end's names for them.
    pub fn word(&mut self, name: impl Fn(Setting) -> &'static str) {
        self.advice = self.advice.worded(name);
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

    /// Sets the subject.
    #[must_use]
    pub fn kind(mut self, kind: FindingKind) -> Self {
        self.kind = kind;
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
