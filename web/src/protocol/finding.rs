//! Findings, as the page shows them.

use serde::{Deserialize, Serialize};

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Severity {
    /// Would run or reach something if loaded by the original library.
    Danger,
    /// Would call unknown code if loaded by the original library.
    UnknownCode,
    /// Data is missing, damaged or unfinished.
    Damage,
    /// The checkpoint may not be what it seems.
    Warning,
    Note,
}

impl Severity {
    /// All of them, the most severe first.
    pub const ALL: [Self; 5] =
        [Self::Danger, Self::UnknownCode, Self::Damage, Self::Warning, Self::Note];
}

/// Something about the checkpoint that its user should know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    pub severity: Severity,
    /// A plain sentence.
    pub title: String,
    /// What it means.
    pub text: String,
    /// What to do about it; may be empty.
    pub advice: String,
    /// The call that a pickle would have made: label and text.
    pub call: Vec<(String, String)>,
    /// File and offset, or a key; may be empty.
    pub place: String,
    /// Keys that it is about, as far as they are rows.
    pub keys: Vec<String>,
    /// True if it would be settled by a file that is not open.
    pub missing: bool,
}
