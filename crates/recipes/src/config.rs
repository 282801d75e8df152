//! Model configs: reading and writing them as Python does, and converting them between formats.

mod convert;
mod dtype;
mod expression;
mod family;
mod hooks;
mod json;
mod mup;
mod operation;
mod plan;
mod recognise;
mod releases;
mod rule;
mod section;
mod side;
mod statement;
mod table;
mod value;
mod yaml;

use statelens_checkpoint::{Error, Result};

pub use convert::{Converted, StepConfig};
pub use family::Families;
pub use plan::{ConversionStep, FormatPair};
pub use recognise::Guess;
pub use side::Side;
pub use value::{List, Map, MapKey, Value};

/// The languages that configs are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// As Python's `json` reads and writes it: `NaN` and `Infinity` are numbers.
    Json,
    /// YAML 1.1 as PyYAML reads and writes it: `1e-5` is a string, `yes` is true.
    Yaml,
}

impl Language {
    /// The language that a file's extension promises.
    pub fn of_name(name: &str) -> Option<Self> {
        let extension = name.rsplit_once('.')?.1.to_ascii_lowercase();
        match extension.as_str() {
            "json" => Some(Self::Json),
            "yaml" | "yml" => Some(Self::Yaml),
            _ => None,
        }
    }

    /// The extension of files in this language.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Yaml => "yaml",
        }
    }
}

/// What a config may come to in memory, whatever its text claims.
const MAX_BYTES: usize = 16 << 20;
/// How many values a config may come to, once its aliases are written out.
const MAX_NODES: usize = 500_000;
/// Python's own limit of recursion lets no reader go much deeper than this times ten.
const MAX_DEPTH: usize = 100;

/// Reads a config.
pub fn parse(text: &str, language: Language) -> Result<Value> {
    if text.len() > MAX_BYTES {
        return Err(Error::limit(format!("the config has {} bytes", text.len()))
            .expected("16 MiB at most, of text that people write"));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match language {
        Language::Json => json::parse(text),
        Language::Yaml => yaml::parse(text),
    }
}

impl Value {
    /// As `json.dumps(value, indent=4)` writes it.
    pub fn to_json(&self) -> String {
        json::write(self)
    }

    /// As `yaml.dump(value, indent=4)` of PyYAML writes it: keys sorted.
    pub fn to_yaml(&self) -> String {
        yaml::write(self, 4)
    }

    /// As `yaml.dump(value)` of PyYAML writes it: keys sorted, levels set in by two.
    pub fn to_narrow_yaml(&self) -> String {
        yaml::write(self, 2)
    }
}
