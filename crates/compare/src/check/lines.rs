//! The result of a check as lines of text.

use serde::{Deserialize, Serialize};

use super::{CheckReport, TypeDifference, by_layer};

/// A line of the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckLine {
    /// One of `missing`, `unexpected`, `shape`, `dtype`.
    pub word: String,
    /// The key, with `*` in place of numbers if the line is about several keys that differ only in
    /// these.
    pub key: String,
    /// The type in the file, the expected type, or both.
    pub text: String,
    /// Number of keys that the line covers.
    pub keys: u64,
    /// The numbers in place of the first `*`, as ranges; empty without a `*`.
    pub numbers: String,
}

impl CheckReport {
    /// Returns the lines: missing and unexpected keys by layer, then shapes, then dtypes.
    pub fn lines(&self) -> Vec<CheckLine> {
        let mut lines = Vec::new();
        for (word, list) in [("missing", &self.missing), ("unexpected", &self.unexpected)] {
            for layer in by_layer(list) {
                let Some(first) = list.get(layer.first) else { continue };
                let key = if layer.keys == 1 { first.key.clone() } else { layer.pattern };
                let numbers = if layer.keys == 1 { String::new() } else { layer.numbers };
                let text = first.type_text();
                lines.push(CheckLine { word: word.into(), key, text, keys: layer.keys, numbers });
            }
        }
        for (word, list) in [("shape", &self.shapes), ("dtype", &self.dtypes)] {
            for TypeDifference { key, file, expected } in list {
                let end = if word == "dtype" { ", converted when loaded" } else { "" };
                let text = format!("{file}, expected {expected}{end}");
                let (key, numbers) = (key.clone(), String::new());
                lines.push(CheckLine { word: word.into(), key, text, keys: 1, numbers });
            }
        }
        lines
    }
}
