//! A model config as dotted keys and values.

use std::collections::HashMap;

use super::FactSource;
use super::leaf::{METADATA, ModelLeaf};

/// The config of a model: from Hugging Face, Cerebras or Meta, or the metadata of a GGUF file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    /// The name of its file.
    pub name: String,
    values: HashMap<String, String>,
    /// Whether it is the metadata of the file that holds the weights.
    is_metadata: bool,
}

/// The sections in which configs describe the language model.
const SECTIONS: [&str; 8] = [
    "",
    "model.",
    "trainer.init.model.",
    "text_config.",
    "llm_config.",
    "language_config.",
    "language_model.",
    "decoder.",
];

/// The sections in which configs describe the encoder of images.
const VISION: [&str; 2] = ["vision_config.", ""];

impl Config {
    /// Creates a config of dotted keys and plain values as text.
    pub fn new(
        name: impl Into<String>,
        values: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        Self { name: name.into(), values: values.into_iter().collect(), is_metadata: false }
    }

    /// Reads the metadata of a GGUF file: `llama.block_count` becomes `block_count`.
    pub(super) fn of_leaves(leaves: &[ModelLeaf<'_>]) -> Option<Self> {
        let mut values = HashMap::new();
        for leaf in leaves {
            let Some(key) = leaf.key.strip_prefix(METADATA) else { continue };
            if !leaf.is_tensor && leaf.link().is_none() {
                let text = leaf.value().trim_matches('\'').to_owned();
                values.insert(key.to_owned(), text);
            }
        }
        let architecture = values.get("general.architecture")?.clone();
        let prefix = format!("{architecture}.");
        let own = values.iter().filter_map(|(key, value)| {
            Some((key.strip_prefix(&*prefix)?.to_owned(), value.clone()))
        });
        let own: Vec<_> = own.collect();
        values.extend(own);
        Some(Self { name: "metadata".to_owned(), values, is_metadata: true })
    }

    /// Returns the text of the first key that exists, and its location.
    pub(super) fn text(&self, keys: &[&str]) -> Option<(&str, FactSource)> {
        SECTIONS.iter().find_map(|section| {
            keys.iter().find_map(|key| {
                let key = format!("{section}{key}");
                let value = self.values.get(&key)?;
                Some((value.as_str(), self.source(&key)))
            })
        })
    }

    /// Returns the number of the first key that has one, and its location.
    pub(super) fn number(&self, keys: &[&str]) -> Option<(u64, FactSource)> {
        self.number_in(&SECTIONS, keys)
    }

    /// Like [`Config::number`], for the part of the model with this path.
    pub(super) fn number_of(&self, path: &str, keys: &[&str]) -> Option<(u64, FactSource)> {
        match path.contains("vision") || path.contains("visual") {
            true => self.number_in(&VISION, keys),
            false => self.number(keys),
        }
    }

    fn number_in(&self, sections: &[&str], keys: &[&str]) -> Option<(u64, FactSource)> {
        sections.iter().find_map(|section| {
            keys.iter().find_map(|key| {
                let key = format!("{section}{key}");
                let value = self.values.get(&key)?.parse().ok()?;
                Some((value, self.source(&key)))
            })
        })
    }

    /// Returns the number of exactly this key.
    pub(super) fn exact(&self, key: &str) -> Option<u64> {
        self.values.get(key)?.parse().ok()
    }

    /// Returns the boolean of the first key that exists, and its location.
    pub(super) fn flag(&self, keys: &[&str]) -> Option<(bool, FactSource)> {
        let (text, place) = self.text(keys)?;
        match text {
            "true" | "True" => Some((true, place)),
            "false" | "False" => Some((false, place)),
            _ => None,
        }
    }

    fn source(&self, key: &str) -> FactSource {
        let place = format!("{}: {key}", self.name);
        if self.is_metadata { FactSource::File(place) } else { FactSource::Config(place) }
    }
}
