//! Model families: messages about converting a model from one implementation to another.

use serde::{Deserialize, Serialize};

use crate::protocol::error::ErrorText;

/// What the page requests. The default keeps the names of the keys.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FamilyRequest {
    /// The format to write, as the command calls it (`hf`, `cs-2.9`); `None` keeps the names.
    pub target: Option<String>,
    /// The source format; `None` to recognise it.
    pub source: Option<String>,
    /// The model; `None` to recognise it.
    pub model: Option<String>,
    /// The config; `None` for the one next to the checkpoint.
    pub config: Option<NamedText>,
    /// Whether the user filled in that config, so that it is not in a file.
    pub is_filled_in: bool,
    /// The rules; `None` for those of the model.
    pub recipe: Option<NamedText>,
    /// Leave out keys that no rule covers.
    pub drop_unmatched: bool,
    /// Remove what wrappers have added to keys.
    pub unwrap: bool,
    /// Convert the optimizer's moments too.
    pub with_optimizer: bool,
    /// Fold the adapter next to the model into it first.
    pub fold: bool,
}

impl FamilyRequest {
    /// Returns whether the target is a folder in Hugging Face's layout, rather than a file of a
    /// Cerebras release.
    pub fn is_folder(&self) -> bool {
        self.target.as_ref().is_some_and(|target| !target.starts_with("cs-"))
    }
}

/// A text file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NamedText {
    pub name: String,
    pub text: String,
}

/// The reply about a checkpoint to be converted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FamilyReply {
    pub recognised: RecognisedModel,
    /// The outcome, if a target was requested.
    pub shown: Option<ConversionOutcome>,
}

/// The model that a checkpoint was recognised as.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RecognisedModel {
    /// The model, as the command calls it; empty if unknown.
    pub model: String,
    /// The model's display name.
    pub title: String,
    /// Whether no other model fits.
    pub certain: bool,
    /// The evidence for it.
    pub by: Vec<String>,
    /// The source format; empty if unknown.
    pub source: String,
    /// Why the model or the format is unknown.
    pub unknown: Option<ErrorText>,
    /// The name of the config that was used; may be empty.
    pub config: String,
    /// How the config contradicts keys and shapes, which means that it belongs to another model;
    /// usually empty.
    pub mismatch: String,
    /// Possible target formats, the likeliest first.
    pub targets: Vec<FormatChoice>,
    /// Possible source formats.
    pub sources: Vec<FormatChoice>,
    /// The keys are those of a wrapped model.
    pub wrapped: bool,
    /// The checkpoint has an optimizer's state, or one is in a file next to it.
    pub optimizer: bool,
    /// The name of the PEFT adapter next to it; may be empty.
    pub adapter: String,
    /// The models that fit equally well, if none is recognised.
    pub fitting: Vec<String>,
    /// All models to choose from, without those that differ only in lacking the head.
    pub models: Vec<String>,
}

/// A format of a model, as the command and as the page name it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FormatChoice {
    pub id: String,
    pub name: String,
}

/// The outcome of converting a model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ConversionOutcome {
    /// The rules that are applied.
    pub recipe: NamedText,
    /// The error in the rules, if any.
    pub wrong: Option<ErrorText>,
    /// Old and new keys: those that no rule covers first.
    pub rows: Vec<KeyRow>,
    /// The number of keys that no rule covers.
    pub unmatched: u64,
    /// The number of keys before and after.
    pub keys: (u64, u64),
    /// The config before and after.
    pub config: Option<ConfigLines>,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// Whether the result would load.
    pub loads: Option<LoadCheck>,
}

/// Some keys before and after.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeyRow {
    /// The keys in the checkpoint, folded into one text; empty for a created key.
    pub old: String,
    /// The keys in the output, folded into one text; empty if they are left out.
    pub new: String,
    /// The operations applied, or what happens to the keys.
    pub operations: String,
    /// Whether the new keys are more than copies of the old ones.
    pub rearranged: bool,
    /// The number of keys, differing only in numbers, that this row represents.
    pub times: u64,
    /// No rule covers these keys.
    pub unmatched: bool,
    /// The pattern that resembles an uncovered key most; may be empty.
    pub nearest: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ConfigLines {
    pub old: String,
    /// The lines before, and whether each has no counterpart after.
    pub before: Vec<(String, bool)>,
    pub new: String,
    /// The lines after, and whether each has no counterpart before.
    pub after: Vec<(String, bool)>,
    /// Keys of the config that the new one can't hold.
    pub dropped: Vec<String>,
}

/// Whether a model would load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadCheck {
    /// `None` if it can't be determined.
    pub would: Option<bool>,
    /// Expected keys that were found, and all expected keys.
    pub keys: (u64, u64),
    /// Checks that passed.
    pub good: Vec<String>,
    /// Checks that failed.
    pub bad: Vec<String>,
    /// Checks not made.
    pub open: Vec<String>,
}
