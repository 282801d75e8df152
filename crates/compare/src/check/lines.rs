//! The result of a check as lines of text.

use serde::{Deserialize, Serialize};

use super::{CheckReport, by_layer};

/// A line of the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckLine {
    /// The obstacle that it is about.
    pub kind: CheckLineKind,
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

/// The ways in which a key can fail to load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CheckLineKind {
    /// The file lacks the key.
    Missing,
    /// The key is not expected.
    Unexpected,
    /// The tensor has another shape.
    Shape,
    /// The tensor has another dtype, and is converted when it is loaded.
    DType,
}

impl CheckLineKind {
    /// Returns a word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Unexpected => "unexpected",
            Self::Shape => "shape",
            Self::DType => "dtype",
        }
    }

    /// Returns whether keys of this kind are skipped unless the check is strict.
    pub fn is_skipped_unless_strict(self) -> bool {
        matches!(self, Self::Missing | Self::Unexpected)
    }
}

impl CheckReport {
    /// Returns the lines: missing and unexpected keys by layer, then shapes, then dtypes.
    pub fn lines(&self) -> Vec<CheckLine> {
        let mut lines = Vec::new();
        let of_keys = [
            (CheckLineKind::Missing, &self.missing),
            (CheckLineKind::Unexpected, &self.unexpected),
        ];
        for (kind, list) in of_keys {
            for layer in by_layer(list) {
                let Some(first) = list.get(layer.first) else { continue };
                let (key, numbers) = match layer.keys {
                    1 => (first.key.clone(), String::new()),
                    _ => (layer.pattern, layer.numbers),
                };
                let text = first.type_text();
                lines.push(CheckLine { kind, key, text, keys: layer.keys, numbers });
            }
        }
        let of_types = [
            (CheckLineKind::Shape, &self.shapes, ""),
            (CheckLineKind::DType, &self.dtypes, ", converted when loaded"),
        ];
        for (kind, list, end) in of_types {
            lines.extend(list.iter().map(|one| CheckLine {
                kind,
                key: one.key.clone(),
                text: format!("{}, expected {}{end}", one.file, one.expected),
                keys: 1,
                numbers: String::new(),
            }));
        }
        lines
    }
}
