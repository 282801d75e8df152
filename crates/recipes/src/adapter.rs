//! Folds an adapter that PEFT has saved into the model that it was trained on.
//!
//! For each trained module, `adapter_model.safetensors` has `base_model.model.MODULE.lora_A.weight`
//! `[r, in]` and `….lora_B.weight` `[out, r]`; for an embedding, `….lora_embedding_A` `[r, words]`
//! and `….lora_embedding_B` `[width, r]`. Modules that were trained as a whole are there under
//! their own keys. `adapter_config.json` has the scale of the product. The result is that of
//! `merge_and_unload` of PEFT 0.21.

use std::collections::HashMap;

use regex_lite::Regex;
use statelens_checkpoint::{
    Checkpoint, Error, Result, Rounding, Tensor, TensorId, Value as Node, ValueId, order,
};

use crate::config::{Map, Value};
use crate::engine::{Assembly, State, StateValue};
use crate::lora::{MergeOptions, added};

/// PEFT's names for the file with the matrices.
pub const FILES: [&str; 2] = ["adapter_model.safetensors", "adapter_model.bin"];
/// PEFT's name for the file with their scale.
pub const CONFIG: &str = "adapter_config.json";

/// The result of folding an adapter.
#[derive(Debug)]
pub struct FoldedAdapter {
    pub checkpoint: Checkpoint,
    pub weights: Vec<String>,
}

/// Folds an adapter into its model. The first entry of `joined` is the model, the second the
/// adapter.
pub fn fold(joined: &Checkpoint, config: &Value) -> Result<FoldedAdapter> {
    let config = AdapterConfig::of(config)?;
    let Node::Dict(root) = joined.value(joined.root()) else {
        return Err(Error::refused("there is no model next to the adapter"));
    };
    let mut parts = root.entries.iter().map(|(_, id)| State::of(joined, *id));
    let (Some(model), Some(adapter)) = (parts.next(), parts.next()) else {
        return Err(Error::refused("there is no model next to the adapter"));
    };
    let (model, adapter) = (model?, Adapter::of(&adapter?)?);
    let names = ModulePrefix::of(&model, &adapter)?;
    let mut changed: HashMap<String, Tensor> = HashMap::new();
    for (name, whole) in &adapter.whole {
        let key = names.key(name);
        match model.tensor(&key) {
            Some(own) if own.shape != whole.shape => {
                return Err(Error::refused(format!(
                    "`{key}` has shape {:?} in the model and {:?} in the adapter",
                    own.shape, whole.shape
                ))
                .advice("Resize the model to the size it had when the adapter was trained."));
            }
            None if !config.is_saved(name) => return Err(missing(&key, &config)),
            _ => changed.insert(key, whole.clone()),
        };
    }
    for (module, thin) in &adapter.modules {
        let key = names.key(&format!("{module}.weight"));
        let before = changed.get(&key).or_else(|| model.tensor(&key));
        let weight = before.ok_or_else(|| missing(&key, &config))?;
        let named = |error: Error| {
            let named = Error::refused(format!("`{key}` can't be folded: {}", error.what()));
            match error.next_step() {
                Some(advice) => named.advice(advice.clone()),
                None => named,
            }
        };
        let folded = thin.folded(weight, module, &config).map_err(named)?;
        changed.insert(key, folded);
    }
    if changed.is_empty() {
        return Err(Error::refused("there is no LoRA in the adapter")
            .expected("keys such as base_model.model.MODULE.lora_A.weight"));
    }
    let weights = changed.keys().cloned().collect();
    let mut assembly = Assembly::of(joined);
    let folded = assembly.state(&replaced(joined, &model, changed)?)?;
    if let Some((_, base)) = root.entries.first() {
        assembly.keep_attributes(*base, folded);
        assembly.keep_python_attributes(*base, folded);
    }
    let root = folded;
    let mut folded = FoldedAdapter { checkpoint: assembly.finish(root)?, weights };
    order::natural(&mut folded.weights);
    Ok(folded)
}

/// Returns the model with the changed tensors. Tensors tied to one of them change, too.
fn replaced(
    joined: &Checkpoint,
    model: &State,
    mut changed: HashMap<String, Tensor>,
) -> Result<State> {
    let identity = |from: &Option<ValueId>| Some(joined.tensor_of((*from)?)?.0);
    let mut tied: HashMap<TensorId, (&str, Tensor)> = HashMap::new();
    for (key, item) in model.iter() {
        if let (StateValue::Tensor(_, from), Some(tensor)) = (item, changed.get(key))
            && let Some(id) = identity(from)
            && let Some((other, _)) = tied.insert(id, (key, tensor.clone()))
        {
            return Err(Error::refused(format!(
                "`{other}` and `{key}` are one tensor, and the adapter changes each of them"
            )));
        }
    }
    let mut state = State::default();
    for (key, item) in model.iter() {
        let own = match item {
            StateValue::Tensor(_, from) => identity(from).and_then(|id| tied.get(&id)),
            _ => None,
        };
        let new = changed.remove(key).or_else(|| own.map(|(_, tensor)| tensor.clone()));
        state.set(
            key.to_owned(),
            new.map_or_else(|| item.clone(), |new| StateValue::Tensor(new, None)),
        );
    }
    // New keys, such as a head that the model did not have.
    let mut more: Vec<(String, Tensor)> = changed.into_iter().collect();
    order::by(&mut more, |(one, _), (other, _)| one.cmp(other));
    for (key, tensor) in more {
        state.set(key, StateValue::Tensor(tensor, None));
    }
    Ok(state)
}

fn missing(key: &str, config: &AdapterConfig<'_>) -> Error {
    let of = config.text("base_model_name_or_path").filter(|of| !of.is_empty());
    let expected = of.map_or("the model that it was trained on".to_owned(), |of| {
        format!("the model that it was trained on, {of}")
    });
    Error::refused(format!("the adapter changes `{key}`, and the model has no such key"))
        .expected(expected)
        .advice("Open the model that adapter_config.json names.")
}

#[derive(Default)]
struct Adapter {
    /// Pairs of thin matrices, by module.
    modules: Vec<(String, Thin)>,
    /// Tensors that were trained as a whole, by key.
    whole: Vec<(String, Tensor)>,
}

impl Adapter {
    fn of(state: &State) -> Result<Self> {
        const PARTS: [(&str, &str, bool); 2] = [
            (".lora_A.weight", ".lora_B.weight", false),
            (".lora_embedding_A", ".lora_embedding_B", true),
        ];
        let mut adapter = Self::default();
        for (key, item) in state.iter() {
            let StateValue::Tensor(tensor, _) = item else { continue };
            let Some(name) = key.strip_prefix("base_model.model.") else {
                return Err(Error::refused(format!("`{key}` is not a key of a PEFT adapter"))
                    .expected("keys that begin with base_model.model."));
            };
            let half = PARTS.iter().find_map(|(first, second, is_embedding)| {
                let module = name.strip_suffix(first).map(|module| (module, second, true));
                let module = module.or_else(|| Some((name.strip_suffix(second)?, first, false)));
                module.map(|(module, other, first)| (module, *other, first, *is_embedding))
            });
            match half {
                Some((module, other, is_first, is_embedding)) => {
                    let partner = format!("base_model.model.{module}{other}");
                    let Some(second) = state.tensor(&partner) else {
                        return Err(Error::refused(format!(
                            "the adapter has `{key}`, but not `{partner}`"
                        )));
                    };
                    if is_first {
                        let (first, second) = (tensor.clone(), second.clone());
                        let thin = Thin { first, second, is_embedding };
                        adapter.modules.push((module.to_owned(), thin));
                    }
                }
                None if name.contains(".lora_") => {
                    return Err(Error::unsupported(format!(
                        "`{key}` can't be folded into the weights"
                    ))
                    .expected("lora_A and lora_B alone: no DoRA and no bias of their own"));
                }
                None => {
                    let own = name.replace(".base_layer.", ".").replace(".modules_to_save.", ".");
                    adapter.whole.push((own, tensor.clone()));
                }
            }
        }
        Ok(adapter)
    }
}

struct Thin {
    first: Tensor,
    second: Tensor,
    is_embedding: bool,
}

impl Thin {
    /// Returns the weight with the product of the matrices added.
    fn folded(&self, weight: &Tensor, module: &str, config: &AdapterConfig<'_>) -> Result<Tensor> {
        let rank = self.first.shape.first().copied().unwrap_or(0);
        let scale = config.scale(module, rank)?;
        let (rows, columns) = (self.second.shape.first(), self.first.shape.get(1));
        let crosswise = [columns, rows].map(Option::<&u64>::copied);
        let fits = |shape: [Option<u64>; 2]| {
            weight.shape.iter().copied().map(Some).eq(shape) && shape.iter().all(Option::is_some)
        };
        // GPT-2 stores its matrices transposed. If both orders fit, the config decides.
        let along = fits([rows.copied(), columns.copied()]);
        let transposed = self.is_embedding || fits(crosswise) && (!along || config.crosswise);
        let rounding = if self.is_embedding { Rounding::Scaled } else { Rounding::Sum };
        added(weight, &self.first, &self.second, MergeOptions { scale, transposed, rounding })
    }
}

/// The difference between the keys of the adapter and of the model: transformers also reads `h.0.…`
/// as `transformer.h.0.…`.
struct ModulePrefix {
    without: String,
    with: String,
}

/// The number of prefixes that are tried.
const MAX_STARTS: usize = 16;

impl ModulePrefix {
    fn of(model: &State, adapter: &Adapter) -> Result<Self> {
        let start = |key: &str| key.split_once('.').map(|(start, _)| format!("{start}."));
        let mut all = vec![Self { without: String::new(), with: String::new() }];
        let mut add = |starts: &mut dyn Iterator<Item = String>, take: bool| {
            let mut seen: Vec<String> = Vec::new();
            for start in starts {
                if !seen.contains(&start) && seen.len() < MAX_STARTS {
                    seen.push(start);
                }
            }
            all.extend(seen.into_iter().map(|start| match take {
                true => Self { without: start, with: String::new() },
                false => Self { without: String::new(), with: start },
            }));
        };
        add(&mut adapter.modules.iter().filter_map(|(module, _)| start(module)), true);
        add(&mut model.keys().filter_map(start), false);
        let known = |names: &Self| {
            let weights = adapter.modules.iter().map(|(module, _)| format!("{module}.weight"));
            weights.filter(|name| model.has(&names.key(name))).count()
        };
        // The first of the prefixes that match the most keys.
        let best = all.into_iter().rev().max_by_key(known);
        best.ok_or_else(|| Error::refused("the adapter has no keys"))
    }

    fn key(&self, name: &str) -> String {
        format!("{}{}", self.with, name.strip_prefix(&*self.without).unwrap_or(name))
    }
}

struct AdapterConfig<'a> {
    map: &'a Map,
    crosswise: bool,
    alphas: Vec<(Regex, f64)>,
    ranks: Vec<(Regex, f64)>,
}

impl<'a> AdapterConfig<'a> {
    fn of(config: &'a Value) -> Result<Self> {
        let bad = |what: String| Error::unsupported(what).in_file(CONFIG);
        let map = config.as_map().ok_or_else(|| {
            Error::refused("this is not the config of an adapter")
                .in_file(CONFIG)
                .expected("a dict with r and lora_alpha")
        })?;
        let kind = map.get("peft_type").and_then(Value::as_str).unwrap_or("LORA");
        if kind != "LORA" {
            return Err(bad(format!("folding an adapter of type {kind}")).expected("LORA"));
        }
        let is_on = |name: &str| match map.get(name) {
            Some(Value::List(list)) => !list.is_empty(),
            Some(Value::Map(map)) => !map.is_empty(),
            other => other.is_some_and(Value::is_true),
        };
        const COMPUTES: &str = "
            use_dora use_qalora use_bdlora lora_bias target_parameters layer_replication kasa_config
            monteclora_config arrow_config trainable_token_indices
        ";
        if let Some(name) = COMPUTES.split_ascii_whitespace().find(|name| is_on(name)) {
            return Err(bad(format!("folding an adapter with {name}"))
                .advice("Fold it with PEFT: merge_and_unload()."));
        }
        // These initialisations change the model's own weights before the training.
        let begins = map.get("init_lora_weights").and_then(Value::as_str);
        if let Some(begins) =
            begins.filter(|how| !matches!(*how, "gaussian" | "eva" | "orthogonal"))
        {
            return Err(bad(format!("folding an adapter that was initialised with {begins}"))
                .advice("Fold it with PEFT: merge_and_unload()."));
        }
        let crosswise = is_on("fan_in_fan_out");
        let (alphas, ranks) = (patterns(map, "alpha_pattern")?, patterns(map, "rank_pattern")?);
        Ok(Self { map, crosswise, alphas, ranks })
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.map.get(name).and_then(Value::as_str)
    }

    /// Returns whether the tensor with this key was trained as a whole.
    fn is_saved(&self, key: &str) -> bool {
        let list = self.map.get("modules_to_save").and_then(Value::as_list);
        let mut saved = list.into_iter().flat_map(|list| list.iter()).filter_map(Value::as_str);
        saved.any(|module| key.split('.').any(|part| part == module))
    }

    /// Returns the factor for the product of a module.
    fn scale(&self, module: &str, rank: u64) -> Result<f64> {
        let number = |name: &str, own: &[(Regex, f64)]| {
            let own = own.iter().find(|(pattern, _)| pattern.is_match(module));
            own.map(|(_, number)| *number).or_else(|| self.map.get(name).and_then(Value::as_f64))
        };
        let config_rank = number("r", &self.ranks);
        if config_rank.is_some_and(|config_rank| config_rank != rank as f64) || rank == 0 {
            return Err(Error::refused(format!(
                "lora_A has {rank} rows, and {CONFIG} says rank {}",
                config_rank.unwrap_or_default()
            ))
            .advice("Use the adapter_config.json that was saved with these weights."));
        }
        let alpha = number("lora_alpha", &self.alphas).ok_or_else(|| {
            Error::refused(format!("{CONFIG} has no lora_alpha"))
                .advice("Use the adapter_config.json that was saved with these weights.")
        })?;
        let rank = rank as f64;
        let rooted = self.map.get("use_rslora").is_some_and(Value::is_true);
        Ok(alpha / if rooted { rank.sqrt() } else { rank })
    }
}

/// Returns the numbers for modules whose names match a pattern, in order.
fn patterns(map: &Map, name: &str) -> Result<Vec<(Regex, f64)>> {
    let Some(all) = map.get(name).and_then(Value::as_map) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for pattern in all.keys() {
        let regex = Regex::new(&format!("^(?:.*\\.)?(?:{pattern})$")).map_err(|error| {
            Error::refused(format!("`{pattern}` in {name} is not a pattern: {error}"))
                .in_file(CONFIG)
        })?;
        if let Some(number) = all.get(pattern).and_then(Value::as_f64) {
            found.push((regex, number));
        }
    }
    Ok(found)
}
