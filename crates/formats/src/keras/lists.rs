//! Compares the lists of layers in a file, and the layers of its configuration, with its weights.
//!
//! Keras looks up every name in `layer_names` and `weight_names`
//! (`keras/src/legacy/saving/legacy_h5_format.py`, `load_weights_from_hdf5_group`), and compares the
//! number of variables of each layer with those in its group (`Layer.load_own_variables`). It
//! refuses a file that lacks some of them.

use std::collections::HashSet;

use statelens_checkpoint::{Builder, DictKey, Finding, Grade, Text, Value, ValueId, listed};

use super::config::ConfigLayer;
use super::order::PathOrder;

/// Classes of layers that have weights whatever their arguments are.
const WITH_WEIGHTS: [&str; 17] = [
    "BatchNormalization",
    "Conv1D",
    "Conv1DTranspose",
    "Conv2D",
    "Conv2DTranspose",
    "Conv3D",
    "Conv3DTranspose",
    "Dense",
    "DepthwiseConv1D",
    "DepthwiseConv2D",
    "EinsumDense",
    "Embedding",
    "GRU",
    "LSTM",
    "SeparableConv1D",
    "SeparableConv2D",
    "SimpleRNN",
];
/// The number of names in a finding.
const SHOWN: usize = 5;

/// Returns the finding about names in the lists of a file that it does not have.
pub(super) fn absent_names(lists: &PathOrder, builder: &Builder) -> Option<Finding> {
    let absent = lists.absent(builder);
    finding("The file lists weights that it does not have", &absent)
}

/// Returns the finding about layers of the configuration whose group is missing from a file in which
/// layers have groups by class. `root` is its root group.
pub(super) fn absent_groups(
    layers: &[ConfigLayer],
    builder: &Builder,
    root: ValueId,
) -> Option<Finding> {
    let mut paths = PathOrder::default();
    let certain = layers.iter().filter(|layer| layer.is_built && has_weights(layer));
    certain.for_each(|layer| paths.push(root, layer.path.as_str()));
    let absent = paths.absent(builder);
    // Other versions of Keras named the groups otherwise.
    let is_named_so = has_child(builder, root, "layers") && absent.len() < paths.len();
    let finding = || finding("Layers of the model have no weights in the file", &absent);
    is_named_so.then(finding).flatten()
}

/// Returns the finding about layers of the configuration that the file does not list by name.
pub(super) fn unlisted_layers(layers: &[ConfigLayer], listed: &HashSet<Text>) -> Option<Finding> {
    let top = layers.iter().filter(|layer| layer.is_top && has_weights(layer));
    let names = top.filter_map(|layer| layer.name.as_ref());
    let absent: Vec<String> =
        names.filter(|name| !listed.contains(*name)).map(|name| name.to_string()).collect();
    let finding = || finding("The file does not list all layers of the model", &absent);
    (!listed.is_empty()).then(finding).flatten()
}

fn has_weights(layer: &ConfigLayer) -> bool {
    WITH_WEIGHTS.contains(&&*layer.class) && layer.is_certain
}

fn has_child(builder: &Builder, group: ValueId, name: &str) -> bool {
    let Some(Value::Dict(dict)) = builder.value(group) else { return false };
    dict.entries.iter().any(|(key, _)| matches!(key, DictKey::Str(text) if *text == *name))
}

fn finding(title: &str, absent: &[String]) -> Option<Finding> {
    if absent.is_empty() {
        return None;
    }
    let detail = format!("Missing: {}. Keras can't load the model.", listed(absent, SHOWN));
    Some(Finding::new(Grade::Warning, title).detail(detail).refused())
}

#[cfg(test)]
mod tests {
    use statelens_checkpoint::{Dict, Limits};

    use super::super::config::Config;
    use super::*;

    /// Returns a builder with groups at these paths, and the root group.
    fn groups(paths: &[&str]) -> (Builder, ValueId) {
        let mut builder = Builder::new(&Limits::default());
        let root = builder.push(Value::Dict(Dict::default())).unwrap();
        for path in paths {
            let mut at = root;
            for part in path.split('/') {
                let Some(Value::Dict(dict)) = builder.value(at) else { unreachable!() };
                let known = dict.entries.iter().find(|(key, _)| *key == part.into());
                let next = known.map(|(_, id)| *id);
                let next = next.unwrap_or_else(|| {
                    let id = builder.push(Value::Dict(Dict::default())).unwrap();
                    if let Some(Value::Dict(dict)) = builder.value_mut(at) {
                        dict.entries.push((part.into(), id));
                    }
                    id
                });
                at = next;
            }
        }
        (builder, root)
    }

    const MODEL: &[u8] = br#"{"class_name":"Sequential","config":{"layers":[
        {"class_name":"InputLayer","config":{"name":"in"}},
        {"class_name":"Dense","module":"keras.layers","config":{"name":"a"},"build_config":{}},
        {"class_name":"Dropout","config":{"name":"b"},"build_config":{}},
        {"class_name":"Dense","config":{"name":"c"},"build_config":{}},
        {"class_name":"Dense","config":{"name":"d"},"build_config":null},
        {"class_name":"Dense","module":"mine","config":{"name":"e"},"build_config":{}}]}}"#;

    #[test]
    fn built_layers_of_keras_need_a_group() {
        let layers = Config::parse(MODEL).unwrap().layers();
        let detail = |paths: &[&str]| {
            let (builder, root) = groups(paths);
            absent_groups(&layers, &builder, root).map(|finding| finding.detail)
        };
        assert_eq!(detail(&["layers/dense", "layers/dense_1"]), None);
        let missing = "Missing: layers/dense_1. Keras can't load the model.";
        assert_eq!(detail(&["layers/dense", "optimizer"]).as_deref(), Some(missing));
        // Groups by other names.
        assert_eq!(detail(&["layers/a", "layers/b"]), None);
        assert_eq!(detail(&["_layer_checkpoint_dependencies/dense"]), None);
    }

    #[test]
    fn files_list_all_layers_of_the_model() {
        let layers = Config::parse(MODEL).unwrap().layers();
        let finding = |names: &[&str]| {
            let listed = names.iter().map(|name| Text::from(*name)).collect();
            unlisted_layers(&layers, &listed)
        };
        assert!(finding(&["a", "c", "d", "e"]).is_none() && finding(&[]).is_none());
        let found = finding(&["a", "d", "e"]).unwrap();
        assert!(found.refused && found.detail.contains("Missing: c."), "{found:?}");
    }
}
