//! Access to config.json.

use statelens_checkpoint::{FileSet, Result};

use super::Findings;
use super::document::{JsonFile, JsonValue};
use super::files;
use super::rules::CONFIG_BROKEN;
use super::shard::{report_stand_in, text_of};

/// Sections of a multimodal model's config that describe its language model.
const TEXT_SECTIONS: [&str; 5] =
    ["text_config", "llm_config", "language_config", "thinker_config", "decoder_config"];

/// Fields that are numbers, or lists with a number for each layer.
const SIZES: [&str; 6] = [
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
];

pub(super) struct Config {
    json: JsonFile,
}

/// A number of the config, with the name of its field.
pub(super) type Field = (&'static str, u64);

impl Config {
    /// Reads config.json, if there is one. Reports one that can't be read.
    pub(super) fn read(files: &FileSet, findings: &mut Findings<'_>) -> Result<Option<Self>> {
        const NAME: &str = "config.json";
        let Some(id) = files::id_of(files, NAME) else { return Ok(None) };
        if let Some(found) = files::stand_in(files, id)? {
            report_stand_in(found, NAME, findings);
            return Ok(None);
        }
        let Some(read) = JsonFile::read(files, NAME) else { return Ok(None) };
        let error = match read {
            Ok(json) if json.root().is_object() => {
                let config = Self { json };
                config.check_numbers(findings);
                return Ok(Some(config));
            }
            Ok(_) => "it is not an object".to_owned(),
            Err(error) => text_of(&error),
        };
        findings.add(&CONFIG_BROKEN, NAME, format!("{NAME} can't be read: {error}"));
        Ok(None)
    }

    /// Reports sizes of the model that are texts, or negative.
    fn check_numbers(&self, findings: &mut Findings<'_>) {
        for section in self.sections() {
            for (name, value) in section.entries() {
                let is_size = SIZES.contains(&name.as_str());
                if is_size && (value.text().is_some() || value.is_negative()) {
                    let text = format!("`{name}` in {} is not a whole number", self.file());
                    findings.add(&CONFIG_BROKEN, self.file(), text);
                }
            }
        }
    }

    pub(super) fn file(&self) -> &str {
        &self.json.file
    }

    pub(super) fn root(&self) -> JsonValue<'_> {
        self.json.root()
    }

    /// Returns the sections that describe the language model, the innermost first.
    pub(super) fn sections(&self) -> Vec<JsonValue<'_>> {
        let root = self.root();
        let mut found = Vec::new();
        for name in TEXT_SECTIONS {
            if let Some(section) = root.get(name).filter(|it| it.is_object()) {
                found.extend(section.get("text_config").filter(|it| it.is_object()));
                found.push(section);
            }
        }
        found.push(root);
        found
    }

    /// Returns the first field of the language model with one of these names.
    pub(super) fn value(&self, names: &[&'static str]) -> Option<(&'static str, JsonValue<'_>)> {
        self.sections()
            .into_iter()
            .find_map(|section| names.iter().find_map(|name| Some((*name, section.get(name)?))))
    }

    /// Returns the first of these fields that is a number.
    pub(super) fn number(&self, names: &[&'static str]) -> Option<Field> {
        self.sections().into_iter().find_map(|section| {
            names.iter().find_map(|name| Some((*name, section.get(name)?.number()?)))
        })
    }

    pub(super) fn has(&self, names: &[&'static str]) -> bool {
        self.value(names).is_some()
    }

    /// Returns a boolean field: what the sections agree on.
    pub(super) fn flag(&self, name: &str) -> Option<bool> {
        let found = self.sections().into_iter().filter_map(|one| one.get(name)?.bool());
        let found: Vec<bool> = found.collect();
        let first = *found.first()?;
        found.iter().all(|one| *one == first).then_some(first)
    }

    /// Returns the names of the classes that the config was saved by.
    pub(super) fn architectures(&self) -> Vec<&str> {
        let list = self.root().get("architectures");
        list.into_iter().flat_map(JsonValue::items).filter_map(JsonValue::text).collect()
    }

    pub(super) fn model_type(&self) -> &str {
        self.root().get("model_type").and_then(JsonValue::text).unwrap_or("")
    }

    /// Returns `quantization_config`, wherever it is.
    pub(super) fn quantization(&self) -> Option<JsonValue<'_>> {
        let names = ["quantization_config", "compression_config"];
        self.value(&names).map(|(_, value)| value).filter(|value| value.is_object())
    }

    /// Returns the type of each layer, if the config lists them for as many layers.
    pub(super) fn layer_types(&self, layers: u64) -> Vec<String> {
        let names = ["layer_types", "layers_block_type", "attn_type_list", "block_configs"];
        let Some((_, list)) = self.value(&names) else { return Vec::new() };
        let kind = |one: JsonValue<'_>| match (one.text(), one.number()) {
            (Some(text), _) => text.to_owned(),
            (None, number) => number.map(|number| number.to_string()).unwrap_or_default(),
        };
        let types: Vec<String> = list.items().map(kind).collect();
        match types.len() as u64 >= layers {
            true => types,
            false => Vec::new(),
        }
    }
}
