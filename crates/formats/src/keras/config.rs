//! Reads the JSON configuration next to the weights.

use statelens_checkpoint::json::{Document, Id, JsonNode};
use statelens_checkpoint::{Result, Text, order};

pub(super) struct Config(Document);

/// A layer of a model.
pub(super) struct ConfigLayer {
    /// The path of its group, from the root group.
    pub(super) path: String,
    pub(super) class: String,
    /// The name that the user or Keras gave it.
    pub(super) name: Option<Text>,
    /// Whether it is a layer of the model itself, not of a model in it.
    pub(super) is_top: bool,
    /// Whether it had been built, and so had its weights. Keras 2 does not record it.
    pub(super) is_built: bool,
    /// Whether its path is certain: the class is one of Keras, and no layer on the path is used twice.
    pub(super) is_certain: bool,
}

impl Config {
    pub(super) fn parse(text: &[u8]) -> Result<Self> {
        Ok(Self(Document::parse(text)?))
    }

    /// Returns the model as `Sequential "name"`, as far as it is specified.
    pub(super) fn model(&self) -> Option<String> {
        let root = self.0.root();
        let class = self.0.field(root, "class_name")?.text()?;
        let name = self.0.get(root, "config").and_then(|config| self.name(config));
        Some(match name {
            Some(name) => format!("{class} {name:?}"),
            None => class.to_string(),
        })
    }

    fn name(&self, config: Id) -> Option<String> {
        Some(self.0.field(config, "name")?.text()?.to_string())
    }

    pub(super) fn text(&self, name: &str) -> Option<&Text> {
        self.0.field(self.0.root(), name)?.text()
    }

    /// Returns the groups of the layers in model order, including nested models. Keras 3 names a
    /// group after the class of the layer, with a number appended from the second one of a class
    /// on.
    pub(super) fn layers(&self) -> Vec<ConfigLayer> {
        let mut found = Vec::new();
        let mut open = vec![(self.0.root(), String::new(), true)];
        while let Some((model, folder, certain)) = open.pop() {
            let layers = self.0.get(model, "config");
            let layers = layers.and_then(|config| self.0.get(config, "layers"));
            let mut used: std::collections::HashMap<String, u64> = Default::default();
            for layer in layers.map(|layers| self.0.items(layers)).unwrap_or_default() {
                let Some(JsonNode::Str(class)) = self.0.field(*layer, "class_name") else {
                    continue;
                };
                let name = snake_case(&class.to_lossy());
                let count = used.entry(name.clone()).or_default();
                let path = match *count {
                    0 => format!("{folder}layers/{name}"),
                    again => format!("{folder}layers/{name}_{again}"),
                };
                *count += 1;
                // A longer path than in any real model belongs to no group.
                if found.len() < MAX_LAYERS && path.len() < 4096 {
                    let once = self.0.get(*layer, "shared_object_id").is_none();
                    let module = self.0.field(*layer, "module").and_then(JsonNode::text);
                    let own = module.is_none_or(|module| module.to_lossy().starts_with("keras"));
                    let is_certain = certain && once && own;
                    open.push((*layer, format!("{path}/"), is_certain));
                    let config = self.0.get(*layer, "config");
                    let is_object = |id| matches!(self.0.node(id), JsonNode::Object(_));
                    found.push(ConfigLayer {
                        path,
                        class: class.to_string(),
                        name: config.and_then(|it| self.0.field(it, "name")?.text().cloned()),
                        is_top: model == self.0.root(),
                        is_built: self.0.get(*layer, "build_config").is_some_and(is_object),
                        is_certain,
                    });
                }
            }
        }
        found
    }

    /// Returns the groups in the order of a shard index, and the shards.
    pub(super) fn shards(&self) -> Option<(Vec<String>, Vec<String>)> {
        let map = self.0.get(self.0.root(), "weight_map")?;
        let JsonNode::Object(entries) = self.0.node(map) else { return None };
        let mut paths = Vec::new();
        let mut shards: Vec<String> = Vec::new();
        let mut known = std::collections::HashSet::new();
        for (path, value) in entries {
            paths.push(path.to_lossy().into_owned());
            let one = std::slice::from_ref(value);
            let names = if let JsonNode::Array(items) = self.0.node(*value) { items } else { one };
            for name in names {
                let name = self.0.node(*name).text()?.to_string();
                if known.insert(name.clone()) {
                    shards.push(name);
                }
            }
        }
        order::natural(&mut shards);
        Some((paths, shards))
    }
}

/// The maximum number of layers; no model has more.
const MAX_LAYERS: usize = 100_000;

/// Converts `BatchNormalization` to `batch_normalization` as Keras does.
fn snake_case(class: &str) -> String {
    let letters: Vec<char> = class.chars().filter(|c| c.is_alphanumeric() || *c == '_').collect();
    let mut name = String::with_capacity(class.len() + 4);
    for (at, letter) in letters.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| letters.get(at));
        let after = letters.get(at + 1);
        let starts = after.is_some_and(char::is_ascii_lowercase)
            || before.is_some_and(char::is_ascii_lowercase);
        if letter.is_ascii_uppercase() && starts && before.is_some_and(|before| *before != '_') {
            name.push('_');
        }
        name.extend(letter.to_lowercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snake_case_matches_keras() {
        for (class, name) in [
            ("Dense", "dense"),
            ("LSTM", "lstm"),
            ("Conv2D", "conv2d"),
            ("BatchNormalization", "batch_normalization"),
            ("MultiHeadAttention", "multi_head_attention"),
            ("LSTMCell", "lstm_cell"),
            ("GlobalAveragePooling1D", "global_average_pooling1d"),
        ] {
            assert_eq!(snake_case(class), name);
        }
    }

    #[test]
    fn numbers_layers_of_one_class() {
        let text = br#"{"class_name":"Sequential","config":{"name":"m","layers":[
            {"class_name":"Dense"},{"class_name":"Sequential","config":{"layers":[{"class_name":"Dense"}]}},
            {"class_name":"Dense"}]}}"#;
        let config = Config::parse(text).unwrap();
        assert_eq!(config.model().unwrap(), "Sequential \"m\"");
        let expected = [
            "layers/dense",
            "layers/sequential",
            "layers/dense_1",
            "layers/sequential/layers/dense",
        ];
        let paths: Vec<String> = config.layers().into_iter().map(|layer| layer.path).collect();
        assert_eq!(paths, expected);
    }
}
