//! Checks whether a model would load: compares its keys and shapes with those that the config
//! implies. Does not use the recipe that converted it.
//!
//! Checks the number of layers, and that each key of a layer is in all of them; projections that
//! belong together; the number of experts; the shapes of embeddings, heads, norms, attention and
//! feed-forward by the sizes in the config. The rest is counted as not checked.

use std::collections::{BTreeMap, BTreeSet};

use statelens_checkpoint::{Checkpoint, Result, Tensor};

use crate::config::{Map, Value};
use crate::conversion::{model_of, model_section};
use crate::engine::{State, StateValue};
use crate::format::Implementation;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loads {
    /// Keys that are expected and present.
    pub found: u64,
    pub expected: u64,
    /// The first missing keys, and the number of all.
    pub missing: (Vec<String>, u64),
    /// The first unexpected keys, and the number of all.
    pub unexpected: (Vec<String>, u64),
    pub misfits: Vec<Misfit>,
    /// The number of layers in the config; `None` if it is missing, or the keys don't distinguish
    /// layers.
    pub layers: Option<u64>,
    /// Tensors whose shapes were checked.
    pub shapes: u64,
    /// Tensors whose shapes the config does not determine.
    pub other_shapes: u64,
    /// The keys of the config that were used.
    pub by: BTreeSet<String>,
}

/// A tensor whose shape differs from the config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    pub key: String,
    pub shape: Vec<u64>,
    /// The shape that the config implies.
    pub expected: Vec<u64>,
}

impl Loads {
    /// Returns whether no problem was found.
    pub fn would(&self) -> bool {
        self.missing.1 == 0 && self.unexpected.1 == 0 && self.misfits.is_empty()
    }
}

/// Compares the model of a checkpoint with its config.
pub fn check(checkpoint: &Checkpoint, format: Implementation, config: &Value) -> Result<Loads> {
    let state = State::of(checkpoint, model_of(checkpoint, format)?)?;
    let Some(section) = model_section(config).as_map() else { return Ok(Loads::default()) };
    let mut loads = Loads::default();
    names(&state, section, &mut loads);
    shapes(&state, section, &mut loads);
    loads.found = state.len() as u64 - loads.unexpected.1;
    loads.expected = loads.found + loads.missing.1;
    Ok(loads)
}

/// Parts of a key that are followed by the number of a layer.
const LISTS: [&str; 5] = ["layers", "layer", "h", "block", "blocks"];
/// Keys that only the first layer has.
const IN_THE_FIRST: [&str; 1] = ["relative_attention_bias"];
/// Modules that occur only together.
const TOGETHER: [&[&str]; 5] = [
    &["q_proj", "k_proj", "v_proj"],
    &["proj_q_dense_layer", "proj_k_dense_layer", "proj_v_dense_layer", "proj_output_dense_layer"],
    &["gate_proj", "up_proj", "down_proj"],
    &["query", "key", "value"],
    &["ffn.0.linear_layer", "ffn.1.linear_layer"],
];
/// Limit on layers and on experts, larger than in any model.
const MAX_COUNT: u64 = 100_000;
/// Keys that are listed.
const NAMED: usize = 100;

/// The keys of the layers in one stack: the rest of the key after the layer's number, with the
/// layers that have it.
type Stack<'a> = BTreeMap<&'a str, BTreeSet<u64>>;

fn names(state: &State, config: &Map, loads: &mut Loads) {
    let mut stacks: BTreeMap<&str, Stack<'_>> = BTreeMap::new();
    for key in state.keys() {
        if let Some((list, layer, rest)) = in_layer(key) {
            stacks.entry(list).or_default().entry(rest).or_default().insert(layer);
        }
    }
    for (list, stack) in &stacks {
        let Some(layers) = layers(list, stacks.len(), config, &mut loads.by) else { continue };
        loads.layers = Some(loads.layers.unwrap_or(0).max(layers));
        each_layer(list, stack, layers, loads);
        together(list, stack, layers, loads);
        experts(list, stack, config, loads);
    }
}

/// Returns the part of a key before the layer's number, including the dot, the number, and the
/// rest.
fn in_layer(key: &str) -> Option<(&str, u64, &str)> {
    let mut at = 0;
    let mut list = false;
    for part in key.split('.') {
        let end = at + part.len();
        if list && let Ok(layer) = part.parse::<u64>() {
            return Some((&key[..at], layer, key.get(end + 1..).unwrap_or_default()));
        }
        list = LISTS.contains(&part);
        at = end + 1;
    }
    None
}

/// Returns the number of layers of a stack according to the config.
fn layers(list: &str, stacks: usize, config: &Map, by: &mut BTreeSet<String>) -> Option<u64> {
    let decoder = list.split('.').any(|part| part == "decoder");
    let encoder = list.split('.').any(|part| part == "encoder");
    let names: &[&str] = match (encoder, decoder, stacks) {
        (true, _, 2) => &["encoder_num_hidden_layers", "num_layers"],
        (_, true, 2) => &["decoder_num_hidden_layers", "num_decoder_layers"],
        // With several stacks, the number may refer to any of them.
        (.., 2..) => return None,
        _ => &["num_hidden_layers", "n_layer", "n_layers", "num_layers"],
    };
    number(config, names, by).filter(|layers| (1..=MAX_COUNT).contains(layers))
}

/// Checks that each key of a layer is in all layers, and in no others.
fn each_layer(list: &str, stack: &Stack<'_>, layers: u64, loads: &mut Loads) {
    for (rest, found) in stack {
        for layer in found.range(layers..) {
            note(&mut loads.unexpected, || format!("{list}{layer}.{rest}"));
        }
        let first = rest.split('.').any(|part| IN_THE_FIRST.contains(&part));
        let needed = if first { 1 } else { layers };
        for layer in (0..needed).filter(|layer| !found.contains(layer)) {
            note(&mut loads.missing, || format!("{list}{layer}.{rest}"));
        }
    }
}

/// Checks that modules that belong together are complete. Modules that are missing in all layers
/// are reported, too.
fn together(list: &str, stack: &Stack<'_>, layers: u64, loads: &mut Loads) {
    let mut wanted = BTreeSet::new();
    for rest in stack.keys() {
        let Some(module) = rest.strip_suffix(".weight") else { continue };
        // A gate belongs to the layer that it gates.
        let module = module.strip_suffix("_for_glu").unwrap_or(module);
        for set in TOGETHER {
            let parents = set.iter().filter_map(|name| {
                let parent = module.strip_suffix(name)?;
                (parent.is_empty() || parent.ends_with('.')).then_some(parent)
            });
            for parent in parents {
                wanted.extend(set.iter().map(|other| format!("{parent}{other}.weight")));
            }
        }
    }
    for rest in wanted.iter().filter(|rest| !stack.contains_key(rest.as_str())) {
        for layer in 0..layers {
            note(&mut loads.missing, || format!("{list}{layer}.{rest}"));
        }
    }
}

/// Checks that the number of experts with keys of their own is that of the config.
fn experts(list: &str, stack: &Stack<'_>, config: &Map, loads: &mut Loads) {
    let mut found: BTreeMap<(String, &str), BTreeSet<u64>> = BTreeMap::new();
    for rest in stack.keys() {
        let Some((before, after)) = rest.split_once("experts.") else { continue };
        let Some((number, name)) = after.split_once('.') else { continue };
        if let Ok(number) = number.parse() {
            found.entry((before.to_owned(), name)).or_default().insert(number);
        }
    }
    if found.is_empty() {
        return;
    }
    let names = ["num_local_experts", "num_experts", "moe_params.num_experts"];
    let Some(experts) = number(config, &names, &mut loads.by).filter(|count| *count <= MAX_COUNT)
    else {
        return;
    };
    for ((before, name), found) in &found {
        for expert in (0..experts).filter(|expert| !found.contains(expert)) {
            note(&mut loads.missing, || format!("{list}0.{before}experts.{expert}.{name}"));
        }
        for expert in found.range(experts..) {
            note(&mut loads.unexpected, || format!("{list}0.{before}experts.{expert}.{name}"));
        }
    }
}

struct Sizes {
    hidden: u64,
    words: Option<u64>,
    inner: Option<u64>,
    queries: Option<u64>,
    keys: Option<u64>,
}

impl Sizes {
    fn of(config: &Map, by: &mut BTreeSet<String>) -> Option<Self> {
        let hidden = number(config, &["hidden_size", "n_embd", "d_model"], by)?;
        let heads = number(config, &["num_attention_heads", "n_head", "num_heads"], by);
        let head = number(config, &["head_dim", "d_kv"], by).or_else(|| {
            let inner = number(config, &["attention_inner_dim"], by).unwrap_or(hidden);
            heads
                .filter(|heads| *heads > 0 && inner.is_multiple_of(*heads))
                .map(|heads| inner / heads)
        });
        let several = config.get("attention_module").and_then(Value::as_str);
        let groups = match several {
            Some("multiquery_attention") => {
                number(config, &["extra_attention_params.num_kv_groups"], by).or(Some(1))
            }
            Some(_) => heads,
            None => number(config, &["num_key_value_heads"], by).or(heads),
        };
        let times =
            |count: Option<u64>| count.zip(head).and_then(|(count, head)| count.checked_mul(head));
        Some(Self {
            hidden,
            words: number(config, &["vocab_size"], by),
            inner: number(config, &["intermediate_size", "filter_size", "d_ff", "n_inner"], by),
            queries: times(heads),
            keys: times(groups),
        })
    }

    /// Returns the shape of a module's weight; `None` if the config or the name does not determine
    /// it.
    fn weight(&self, module: &str) -> Option<Vec<Option<u64>>> {
        let hidden = Some(self.hidden);
        let (parent, name) = module.rsplit_once('.').unwrap_or(("", module));
        // Heads also have layers of this name, with other sizes.
        let feeds = |end| in_layer(module).is_some() && parent.ends_with(end);
        Some(match name {
            "embed_tokens" | "wte" | "word_embeddings" | "embed_in" | "lm_head" | "embed_out" => {
                vec![self.words, hidden]
            }
            "q_proj" | "proj_q_dense_layer" => vec![self.queries, hidden],
            "k_proj" | "v_proj" | "proj_k_dense_layer" | "proj_v_dense_layer" => {
                vec![self.keys, hidden]
            }
            "o_proj" | "proj_output_dense_layer" => vec![hidden, self.queries],
            "gate_proj" | "up_proj" | "linear_layer_for_glu" => vec![self.inner, hidden],
            "linear_layer" if feeds("ffn.0") => vec![self.inner, hidden],
            "down_proj" => vec![hidden, self.inner],
            "linear_layer" if feeds("ffn.1") => vec![hidden, self.inner],
            "input_layernorm"
            | "post_attention_layernorm"
            | "norm1"
            | "norm2"
            | "norm3"
            | "ln_1"
            | "ln_2"
            | "ln_f" => vec![hidden],
            _ => return None,
        })
    }
}

fn shapes(state: &State, config: &Map, loads: &mut Loads) {
    let tensors = state.iter().filter_map(|(key, item)| match item {
        StateValue::Tensor(tensor, _) => Some((key, tensor)),
        _ => None,
    });
    let mut by = BTreeSet::new();
    let sizes = Sizes::of(config, &mut by);
    for (key, tensor) in tensors {
        match sizes.as_ref().and_then(|sizes| expected(key, tensor, sizes)) {
            None => loads.other_shapes += 1,
            Some(expected) => {
                loads.shapes += 1;
                if expected != tensor.shape {
                    loads.misfits.push(Misfit {
                        key: key.to_owned(),
                        shape: tensor.shape.clone(),
                        expected,
                    });
                }
            }
        }
    }
    if loads.shapes > 0 {
        loads.by.extend(by);
    }
}

fn expected(key: &str, tensor: &Tensor, sizes: &Sizes) -> Option<Vec<u64>> {
    let (module, bias) = match key.strip_suffix(".weight") {
        Some(module) => (module, false),
        None => (key.strip_suffix(".bias")?, true),
    };
    let mut shape = sizes.weight(module)?;
    if bias {
        shape.truncate(1);
    }
    // Blocks of packed numbers have shapes of their own.
    let plain = tensor.dtype.is_float() && tensor.shape.len() == shape.len();
    plain.then(|| shape.into_iter().collect()).flatten()
}

/// Returns a number of the config by the first of these names that it has.
fn number(config: &Map, names: &[&str], by: &mut BTreeSet<String>) -> Option<u64> {
    names.iter().find_map(|name| {
        let mut parts = name.split('.');
        let first = config.get(parts.next()?)?;
        let found = parts.try_fold(first, |at, part| at.as_map()?.get(part))?;
        let number = found.as_int().and_then(|number| u64::try_from(number).ok())?;
        by.insert((*name).to_owned());
        Some(number)
    })
}

fn note((named, count): &mut (Vec<String>, u64), key: impl FnOnce() -> String) {
    *count += 1;
    if named.len() < NAMED {
        named.push(key());
    }
}

#[cfg(test)]
mod tests {
    use statelens_checkpoint::{
        Builder, DType, Dict, DictKey, FileSet, FormatInfo, Layout, Limits,
    };

    use super::*;
    use crate::config::{Language, parse};

    const CONFIG: &str = "{num_hidden_layers: 2, hidden_size: 8, vocab_size: 16, \
        num_attention_heads: 4, num_key_value_heads: 2, intermediate_size: 12}";

    fn keys() -> Vec<(String, Vec<u64>)> {
        let mut keys = vec![("model.embed_tokens.weight".to_owned(), vec![16, 8])];
        for layer in 0..2 {
            for (name, shape) in [
                ("self_attn.q_proj", vec![8, 8]),
                ("self_attn.k_proj", vec![4, 8]),
                ("self_attn.v_proj", vec![4, 8]),
                ("mlp.down_proj", vec![8, 12]),
                ("mlp.gate_proj", vec![12, 8]),
                ("mlp.up_proj", vec![12, 8]),
                ("input_layernorm", vec![8]),
                ("own", vec![3]),
            ] {
                keys.push((format!("model.layers.{layer}.{name}.weight"), shape));
            }
        }
        keys
    }

    fn loads(keys: &[(String, Vec<u64>)], config: &str) -> Loads {
        let mut builder = Builder::new(&Limits::default());
        let mut entries = Vec::new();
        for (key, shape) in keys {
            let tensor = Tensor::new(DType::F32, shape.clone(), Layout::Fill([0; 4].into()));
            let tensor = builder.push_tensor(tensor).unwrap();
            let id = builder.push(statelens_checkpoint::Value::Tensor(tensor)).unwrap();
            entries.push((DictKey::from(key.as_str()), id));
        }
        let root = statelens_checkpoint::Value::Dict(Dict { entries, ..Dict::default() });
        let root = builder.push(root).unwrap();
        let files = FileSet::default();
        let built = builder.finish(root, FormatInfo::default(), files, Vec::new()).unwrap();
        check(&built, Implementation::HuggingFace, &parse(config, Language::Yaml).unwrap()).unwrap()
    }

    #[test]
    fn finds_every_key_that_the_config_requires() {
        let found = loads(&keys(), CONFIG);
        assert!(found.would(), "{found:?}");
        assert_eq!((found.found, found.expected, found.layers), (17, 17, Some(2)));
        assert_eq!((found.shapes, found.other_shapes), (15, 2));
    }

    #[test]
    fn names_missing_and_unexpected_keys() {
        let without = |part: &str| {
            let kept = keys().into_iter().filter(|(key, _)| !key.contains(part));
            loads(&kept.collect::<Vec<_>>(), CONFIG)
        };
        let found = without("layers.1.self_attn.q_proj");
        assert_eq!(found.missing.0, ["model.layers.1.self_attn.q_proj.weight"]);
        assert_eq!((found.found, found.expected), (16, 17));
        // Missing in all layers: detected only by the modules that belong to it.
        assert_eq!(without("k_proj").missing.0.len(), 2);
        assert_eq!(without("layers.1.").missing.1, 8);
        let more = loads(&keys(), &CONFIG.replace("layers: 2", "layers: 1"));
        assert_eq!((more.unexpected.1, more.found, more.expected), (8, 9, 9));
        let silent = loads(&keys(), "{hidden_size: 8}");
        assert_eq!((silent.layers, silent.would()), (None, true));
    }

    #[test]
    fn compares_shapes_with_the_config() {
        let found = loads(&keys(), &CONFIG.replace("key_value_heads: 2", "key_value_heads: 4"));
        assert_eq!(found.misfits.len(), 4);
        assert_eq!(found.misfits[0].expected, [8, 8]);
        assert_eq!(found.misfits[0].shape, [4, 8]);
        let huge = loads(&keys(), &CONFIG.replace("layers: 2", "layers: 99999999999"));
        assert_eq!(huge.layers, None);
    }
}
