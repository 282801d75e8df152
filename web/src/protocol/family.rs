//! Model families: what is asked of converting from one implementation of a model to another, and
//! what is told of it.

use serde::{Deserialize, Serialize};

use super::error::ErrorText;
use super::opened::Choice;

/// What is asked for. With nothing of it the names of the keys stay.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FamilyRequest {
    /// The format to write, as the command calls it (`hf`, `cs-2.9`); none keeps the names.
    pub target: Option<String>,
    /// The format that the checkpoint is in, unless it is recognised.
    pub source: Option<String>,
    /// The model, unless it is recognised.
    pub model: Option<String>,
    /// The config, unless it is the one beside the checkpoint.
    pub config: Option<NamedText>,
    /// The rules, unless they are those of the model.
    pub recipe: Option<NamedText>,
    /// Keys that no rule covers are left out.
    pub drop_unmatched: bool,
    /// What wrapping has put into keys is taken out.
    pub unwrap: bool,
    /// The optimizer's moments are carried over.
    pub with_optimizer: bool,
    /// The adapter beside the model is folded into it first.
    pub fold: bool,
}

impl FamilyRequest {
    /// Whether a folder is written, as Hugging Face has it, and not a file of one of Cerebras's releases.
    pub fn is_folder(&self) -> bool {
        self.target.as_ref().is_some_and(|target| !target.starts_with("cs-"))
    }
}

/// A file of text.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NamedText {
    /// Its name.
    pub name: String,
    /// What is in it.
    pub text: String,
}

/// What is told of a checkpoint that is to be converted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FamilyReply {
    /// Which model it is of.
    pub looks: Looks,
    /// What becomes of it, if a format to write was asked for.
    pub shown: Option<Shown>,
}

/// Which model a checkpoint is of.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Looks {
    /// The model, as the command calls it; empty if it is not known.
    pub model: String,
    /// As people call it.
    pub title: String,
    /// Whether nothing else fits.
    pub certain: bool,
    /// What says so.
    pub by: Vec<String>,
    /// The format that it is in; empty if it is not known.
    pub source: String,
    /// Why the model or the format is not known.
    pub unknown: Option<ErrorText>,
    /// The name of the config that was used; empty if there is none.
    pub config: String,
    /// How the config contradicts names and shapes: it is of another model. Mostly empty.
    pub mismatch: String,
    /// The formats that it can be converted to, the likeliest first.
    pub targets: Vec<Choice>,
    /// The formats that it may be in.
    pub sources: Vec<Choice>,
    /// Its keys are those of a model that was wrapped.
    pub wrapped: bool,
    /// It has an optimizer's state, or one lies beside it.
    pub optimizer: bool,
    /// The name of the adapter of PEFT beside it; empty if there is none.
    pub adapter: String,
    /// All models that can be chosen.
    pub models: Vec<String>,
}

/// What becomes of a model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// The rules that are applied.
    pub recipe: NamedText,
    /// What is wrong with them.
    pub wrong: Option<ErrorText>,
    /// What becomes of which keys: those that no rule covers first.
    pub rows: Vec<KeyRow>,
    /// How many keys no rule covers.
    pub unmatched: u64,
    /// How many keys there are in the model, and after it.
    pub keys: (u64, u64),
    /// The config before and after.
    pub config: Option<ConfigLines>,
    /// What should be known.
    pub notes: Vec<String>,
    /// Whether it would load.
    pub loads: Option<Loads>,
}

/// What becomes of some keys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeyRow {
    /// The keys in the checkpoint, as one; empty for what is created.
    pub old: String,
    /// The keys in the output, as one; empty for what is left out.
    pub new: String,
    /// What is done.
    pub how: String,
    /// For how many keys that differ in numbers only it stands.
    pub times: u64,
    /// No rule covers it; the pattern that is most like it, if any is.
    pub unmatched: bool,
    /// That pattern.
    pub nearest: String,
}

/// A config before and after.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ConfigLines {
    /// The name before.
    pub old: String,
    /// The lines before, and whether each has no like in the new one.
    pub before: Vec<(String, bool)>,
    /// The name after.
    pub new: String,
    /// The lines after, and whether each has no like in the old one.
    pub after: Vec<(String, bool)>,
    /// Keys that have no place in the new one.
    pub dropped: Vec<String>,
}

/// Whether a model would load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Loads {
    /// Yes or no; `None` where nothing tells.
    pub would: Option<bool>,
    /// Keys that are there and asked for, and those that are asked for.
    pub keys: (u64, u64),
    /// What fits.
    pub good: Vec<String>,
    /// What doesn't.
    pub bad: Vec<String>,
    /// What was not checked.
    pub open: Vec<String>,
}
