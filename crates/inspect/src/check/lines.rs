//! What a check found, a line for each.

use super::{CheckReport, by_layer};

/// A line of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckLine {
    /// `missing`, `unexpected`, `shape`, `dtype`.
    pub word: &'static str,
    /// The key; of several that differ in their numbers only, with `*` for these.
    pub key: String,
    /// What is there, or is expected, or both.
    pub text: String,
    /// How many keys it stands for.
    pub keys: u64,
    /// The numbers that stand for the first `*`, in runs; empty without one.
    pub numbers: String,
}

impl CheckReport {
    /// What was found: missing and unexpected keys by layer, then shapes, then dtypes.
    pub fn lines(&self) -> Vec<CheckLine> {
        let mut lines = Vec::new();
        for (word, list) in [("missing", &self.missing), ("unexpected", &self.unexpected)] {
            for layer in by_layer(list) {
                let Some(first) = list.get(layer.first) else { continue };
                let key = if layer.keys == 1 { first.key.clone() } else { layer.pattern };
                let numbers = if layer.keys == 1 { String::new() } else { layer.numbers };
                let text = first.type_text();
                lines.push(CheckLine { word, key, text, keys: layer.keys, numbers });
            }
        }
        for (word, list) in [("shape", &self.shapes), ("dtype", &self.dtypes)] {
            for (file, wanted) in list {
                let end = if word == "dtype" { ", converted when loaded" } else { "" };
                let text = format!("{}, expected {}{end}", file.type_text(), wanted.type_text());
                let (key, numbers) = (file.key.clone(), String::new());
                lines.push(CheckLine { word, key, text, keys: 1, numbers });
            }
        }
        lines
    }
}
