//! Model configs: reading and writing them as Python does, and converting them between formats.

mod convert;
mod dtype;
mod family;
mod json;
mod mup;
mod nested;
mod operation;
mod plan;
mod recognise;
mod releases;
mod rule;
mod scope;
mod section;
mod statement;
mod table;
mod yaml;

use statelens_checkpoint::{Error, Result};

pub use crate::side::Side;
pub use crate::value::{List, Map, MapKey, Value};
pub use convert::{Converted, StepConfig};
pub use family::Families;
pub use plan::{ConversionStep, FormatPair};
pub use recognise::Guess;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// JSON as Python's `json` reads and writes it: `NaN` and `Infinity` are numbers.
    Json,
    /// YAML 1.1 as PyYAML reads and writes it: `1e-5` is a string, `yes` is true.
    Yaml,
}

impl Language {
    pub fn of_name(name: &str) -> Option<Self> {
        let extension = name.rsplit_once('.')?.1.to_ascii_lowercase();
        match extension.as_str() {
            "json" => Some(Self::Json),
            "yaml" | "yml" => Some(Self::Yaml),
            _ => None,
        }
    }

    pub fn extension(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Yaml => "yaml",
        }
    }
}

/// Memory limit of a config, in bytes, whatever its text claims.
const MAX_BYTES: usize = 16 << 20;
/// Limit on nesting. With Python's recursion limit, no reader gets much deeper than ten times this.
const MAX_DEPTH: usize = 100;

pub fn parse(text: &str, language: Language) -> Result<Value> {
    if text.len() > MAX_BYTES {
        return Err(
            Error::limit(format!("the config has {} bytes", text.len())).expected("at most 16 MiB")
        );
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match language {
        Language::Json => json::parse(text),
        Language::Yaml => yaml::parse(text),
    }
}

impl Value {
    /// Formats the value as `json.dumps(value, indent=4)` does.
    pub fn to_json(&self) -> String {
        json::write(self)
    }

    /// Formats the value as PyYAML's `yaml.dump(value, indent=4)` does: keys sorted.
    pub fn to_yaml(&self) -> String {
        yaml::write(self, 4)
    }

    /// Formats the value as PyYAML's `yaml.dump(value)` does: keys sorted, levels indented by two.
    pub fn to_narrow_yaml(&self) -> String {
        yaml::write(self, 2)
    }
}
