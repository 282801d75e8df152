//! Advice: what the user can do next. It names settings by value, because each front end has its
//! own names for them.

use std::borrow::Cow;
use std::fmt;

/// A setting that advice names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Setting {
    /// What removes a job.
    AbortJob,
    /// The dtype of the output, set to float32.
    CastToFloat32,
    /// The compression of the output.
    Compress,
    /// The config of the model.
    Config,
    /// What converts a checkpoint.
    Convert,
    /// What converts a checkpoint although something is lost.
    ConvertLossy,
    /// Whether keys without a rule are left out.
    DropUnmatched,
    /// Patterns of keys that are left out.
    Exclude,
    /// Whether LoRA is folded into the weights.
    FoldLora,
    /// The command that repairs the spec of a Cerebras checkpoint, and upgrades it.
    FixSpec,
    /// The version of the output's format.
    FormatVersion,
    /// The version of the output's format, set to 0.4.
    FormatVersion04,
    /// The format of the source, set to a release of Cerebras.
    FromCerebras,
    /// The format of the source, set to Hugging Face.
    FromHuggingFace,
    /// The token of an account on the Hugging Face Hub.
    HubToken,
    /// The limits on memory and work, times ten.
    Limit10,
    /// The limits on memory and work, set to none.
    LimitNone,
    /// What lists the formats of model families.
    ListConverters,
    /// What lists the keys of a checkpoint.
    ListKeys,
    /// What makes a manifest.
    MakeManifest,
    /// The number of bytes that may be fetched from servers.
    MaxFetch,
    /// The model family.
    Model,
    /// Whether the object graph is written.
    ObjectGraph,
    /// What plans a job.
    PlanJob,
    /// The prefix that is added to keys.
    Prefix,
    /// The dtypes of arrays without one.
    ReadAs,
    /// The user's own recipe.
    Recipe,
    /// Replacement rules for keys.
    Rename,
    /// Patterns of keys that are kept.
    Select,
    /// The maximum size of an output shard.
    ShardSize,
    /// How output is split: by size, or by state.
    Shards,
    /// The format of the output, set to TensorFlow.
    ToTensorflow,
    /// Whether each of several tied tensors is written.
    Untie,
    /// Whether prefixes of wrappers are removed from keys.
    Unwrap,
    /// The command that upgrades the format version of a Cerebras checkpoint.
    Upgrade,
    /// The option to upgrade a Cerebras checkpoint although something is lost.
    UpgradeLossy,
    /// Whether the state of the optimizer is converted as well.
    WithOptimizer,
}

impl Setting {
    /// Returns the name in the command and in jobs: an option, and its value if one is meant.
    pub fn option(self) -> &'static str {
        match self {
            Self::AbortJob => "`statelens job abort`",
            Self::CastToFloat32 => "--cast float32",
            Self::Compress => "--compress",
            Self::Config => "--config",
            Self::Convert => "`statelens convert`",
            Self::ConvertLossy => "`statelens convert --lossy`",
            Self::DropUnmatched => "--drop-unmatched-keys",
            Self::Exclude => "--exclude",
            Self::FoldLora => "--fold-lora",
            Self::FixSpec => "`statelens fix-checkpoint-spec --upgrade`",
            Self::FormatVersion => "--format-version",
            Self::FormatVersion04 => "--format-version 0.4",
            Self::FromCerebras => "--src-fmt cs-2.4",
            Self::FromHuggingFace => "--src-fmt hf",
            Self::HubToken => "`HF_TOKEN`",
            Self::Limit10 => "--limit 10",
            Self::LimitNone => "--limit none",
            Self::ListConverters => "`statelens list-converters`",
            Self::ListKeys => "`statelens ls`",
            Self::MakeManifest => "`statelens manifest FILE -o MANIFEST`",
            Self::MaxFetch => "--max-fetch",
            Self::Model => "--model",
            Self::ObjectGraph => "--object-graph",
            Self::PlanJob => "`statelens job plan`",
            Self::Prefix => "--prefix NAME",
            Self::ReadAs => "--read-as PATTERN=DTYPE",
            Self::Recipe => "--recipe FILE",
            Self::Rename => "--rename",
            Self::Select => "--select",
            Self::ShardSize => "--shard-size",
            Self::Shards => "--shard-size or --shard",
            Self::ToTensorflow => "--to tensorflow",
            Self::Untie => "--untie",
            Self::Unwrap => "--unwrap",
            Self::Upgrade => "`statelens upgrade`",
            Self::UpgradeLossy => "`statelens upgrade --lossy`",
            Self::WithOptimizer => "--with-optimizer",
        }
    }
}

/// A part of a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phrase {
    /// Text, the same in all front ends.
    Text(Cow<'static, str>),
    /// The name of a setting.
    Setting(Setting),
}

/// Whole sentences that may name settings, and may end with a command to run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Advice {
    phrases: Vec<Phrase>,
    command: Option<String>,
}

/// Builds an [`Advice`] from texts and settings.
#[macro_export]
macro_rules! advice {
    ($($phrase:expr),+ $(,)?) => {
        $crate::Advice::new([$($crate::Phrase::from($phrase)),+])
    };
}

impl Advice {
    /// Joins phrases.
    pub fn new(phrases: impl IntoIterator<Item = Phrase>) -> Self {
        let empty = |phrase: &Phrase| matches!(phrase, Phrase::Text(text) if text.is_empty());
        let phrases = phrases.into_iter().filter(|phrase| !empty(phrase)).collect();
        Self { phrases, command: None }
    }

    /// Appends a command to run, after a colon. The sentence before it has no full stop.
    #[must_use]
    pub fn command(mut self, command: impl Into<String>) -> Self {
        self.command = Some(command.into());
        self
    }

    /// Appends another advice, after a space.
    #[must_use]
    pub fn then(mut self, other: Self) -> Self {
        self.phrases.push(" ".into());
        self.phrases.extend(other.phrases);
        self
    }

    /// Returns whether it has no text.
    pub fn is_empty(&self) -> bool {
        let is_empty = |phrase: &Phrase| matches!(phrase, Phrase::Text(text) if text.is_empty());
        self.command.is_none() && self.phrases.iter().all(is_empty)
    }

    /// Returns the text before the command, with the front end's names of settings.
    pub fn text(&self, name: impl Fn(Setting) -> &'static str) -> String {
        let texts = self.phrases.iter().map(|phrase| match phrase {
            Phrase::Text(text) => text,
            Phrase::Setting(setting) => name(*setting),
        });
        texts.collect()
    }

    /// Returns the text and the command, with the front end's names of settings.
    pub fn sentence(&self, name: impl Fn(Setting) -> &'static str) -> String {
        let text = self.text(name);
        match &self.command {
            Some(command) => format!("{text}: `{command}`."),
            None => text,
        }
    }

    /// Returns the advice with the front end's names of settings in place of the settings.
    #[must_use]
    pub fn worded(&self, name: impl Fn(Setting) -> &'static str) -> Self {
        let word = |phrase: &Phrase| match phrase {
            Phrase::Setting(setting) => name(*setting).into(),
            Phrase::Text(_) => phrase.clone(),
        };
        Self { phrases: self.phrases.iter().map(word).collect(), command: self.command.clone() }
    }

    /// Returns the command to run.
    pub fn to_run(&self) -> Option<&str> {
        self.command.as_deref()
    }
}

impl fmt::Display for Advice {
    /// Writes the advice with the command's names of settings.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence(Setting::option))
    }
}

impl serde::Serialize for Advice {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Reads a text. Settings become text, too.
impl<'de> serde::Deserialize<'de> for Advice {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(if text.is_empty() { Self::default() } else { text.into() })
    }
}

impl<T: Into<Phrase>> From<T> for Advice {
    fn from(phrase: T) -> Self {
        Self::new([phrase.into()])
    }
}

impl From<&'static str> for Phrase {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Phrase {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<Setting> for Phrase {
    fn from(setting: Setting) -> Self {
        Self::Setting(setting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn front_ends_name_settings_and_show_the_command() {
        let advice = advice!["Leave it out with ", Setting::Exclude, ", or fetch it"];
        assert_eq!(advice.text(|_| "Exclude"), "Leave it out with Exclude, or fetch it");
        let advice = advice.command("git lfs pull");
        assert_eq!(advice.to_run(), Some("git lfs pull"));
        assert_eq!(advice.to_string(), "Leave it out with --exclude, or fetch it: `git lfs pull`.");
    }
}
