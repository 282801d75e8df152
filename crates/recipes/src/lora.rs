//! Folds LoRA: adds the product of two thin matrices to a weight.
//!
//! For a module with `lora_A` `[r, in]` and `lora_B` `[out, r]`, the weight becomes `weight +
//! (lora_B @ lora_A) * (alpha / r)`; for an embedding, the transpose is added. `r` follows from the
//! matrices. `alpha` is in the config (`model.lora_params`), which is a group or a list of groups,
//! each for the modules whose classes it names.

use std::sync::Arc;

use statelens_checkpoint::{
    ByteOrder, Checkpoint, Computed, DictKey, Error, Layout, Product, Result, Rounding, Tensor,
    Value as CheckpointValue, listed,
};

use crate::config::Value;
use crate::conversion::{model_of, model_section};
use crate::engine::{Assembly, State, StateValue};
use crate::format::Implementation;
use crate::view::View;

#[derive(Debug)]
pub struct FoldedLora {
    /// The checkpoint without the thin matrices, and without the state of the optimizer, which is
    /// theirs.
    pub checkpoint: Checkpoint,
    /// The config, without `lora_params`.
    pub config: Value,
    pub weights: Vec<String>,
    /// Messages for the user.
    pub notes: Vec<String>,
}

/// Folds LoRA into the weights of a Cerebras checkpoint.
pub fn fold(source: &Checkpoint, config: &Value) -> Result<FoldedLora> {
    let groups = groups(config)?;
    let state = State::of(source, model_of(source, Implementation::CURRENT)?)?;
    let mut folded = State::default();
    let mut weights = Vec::new();
    let mut embeddings = false;
    for (key, item) in state.iter() {
        if key.ends_with(".lora_A") || key.ends_with(".lora_B") {
            check_partner(&state, key)?;
            continue;
        }
        let thin = key.strip_suffix(".weight").and_then(|module| {
            let first = state.tensor(&format!("{module}.lora_A"))?;
            Some((module, first, state.tensor(&format!("{module}.lora_B"))?))
        });
        let (Some((module, first, second)), StateValue::Tensor(weight, _)) = (thin, item) else {
            folded.set(key.to_owned(), item.clone());
            continue;
        };
        let is_embedding = module.contains("embedding");
        embeddings |= is_embedding;
        let named = |error: Error| Error::refused(format!("`{key}` can't be folded: {error}"));
        let rank = first.shape.first().copied().unwrap_or(0);
        let alpha = alpha(&groups, module, rank).map_err(named)?;
        let scale = alpha / rank.max(1) as f64;
        let sum = MergeOptions { scale, transposed: is_embedding, rounding: Rounding::Each };
        let tensor = added(weight, first, second, sum).map_err(named)?;
        folded.set(key.to_owned(), StateValue::Tensor(tensor, None));
        weights.push(key.to_owned());
    }
    if weights.is_empty() {
        return Err(Error::refused("there is no LoRA in this checkpoint")
            .expected("keys that end in .lora_A and .lora_B next to a .weight"));
    }
    let mut assembly = Assembly::of(source);
    let model = assembly.state(&folded)?;
    let mut left_out = Vec::new();
    let mut states = Vec::new();
    if let CheckpointValue::Dict(root) = source.value(source.resolve(source.root())) {
        for (key, state) in &root.entries {
            match key {
                DictKey::Str(name) if *name == *"model" => states.push((key.clone(), model)),
                DictKey::Str(name) if name.to_lossy().starts_with("optimizer") => {
                    left_out.push(format!("`{name}`"));
                }
                _ => states.push((key.clone(), *state)),
            }
        }
    }
    let root = assembly.dict(states)?;
    let (config, mut notes) = without_lora(config, embeddings);
    if !left_out.is_empty() {
        notes.push(format!(
            "{} is left out: it belongs to the matrices that were folded",
            listed(&left_out, 5)
        ));
    }
    Ok(FoldedLora { checkpoint: assembly.finish(root)?, config, weights, notes })
}

pub(crate) struct MergeOptions {
    /// The factor of the product.
    pub(crate) scale: f64,
    /// Whether its transpose is added.
    pub(crate) transposed: bool,
    /// How the result is rounded.
    pub(crate) rounding: Rounding,
}

/// Returns the weight with the product added.
pub(crate) fn added(
    weight: &Tensor,
    first: &Tensor,
    second: &Tensor,
    options: MergeOptions,
) -> Result<Tensor> {
    let MergeOptions { scale, transposed, rounding } = options;
    let (first, second) = (View::of(first)?, View::of(second)?);
    let (left, right) = match transposed {
        true => (first.permute(&[1, 0])?, second.permute(&[1, 0])?),
        false => (second, first),
    };
    let (left, right) = (left.tensor()?, right.tensor()?);
    let fits = left.shape.first() == weight.shape.first()
        && left.shape.get(1) == right.shape.first()
        && right.shape.get(1) == weight.shape.get(1)
        && weight.shape.len() == 2;
    if !fits || !weight.dtype.is_float() {
        return Err(Error::refused(format!(
            "a product of {:?} and {:?} does not fit a {} weight of {:?}",
            left.shape, right.shape, weight.dtype, weight.shape
        ))
        .advice(
            "Open the model that the adapter was trained on, in a version that is not \
                 quantised.",
        ));
    }
    let product = Some(Product { left, right, scale, rounding });
    let computed = Computed { of: weight.clone(), steps: Vec::new(), product };
    Ok(Tensor {
        stored: weight.dtype.clone(),
        byte_order: ByteOrder::Little,
        conjugate: false,
        negate: false,
        storage: None,
        layout: Layout::Computed(Arc::new(computed)),
        ..weight.clone()
    })
}

struct LoraGroup {
    alpha: f64,
    rank: Option<u64>,
    classes: Vec<String>,
}

fn groups(config: &Value) -> Result<Vec<LoraGroup>> {
    let missing = || {
        Error::refused("the config has no model.lora_params, which give the scale of LoRA")
            .advice("Use the config that the model was trained with.")
    };
    let section = model_section(config).as_map().ok_or_else(missing)?;
    let all: Vec<&Value> = match section.get("lora_params") {
        Some(Value::List(list)) => list.iter().collect(),
        Some(one @ Value::Map(_)) => vec![one],
        _ => return Err(missing()),
    };
    all.into_iter()
        .map(|group| {
            let map = group.as_map().ok_or_else(missing)?;
            let alpha = map.get("alpha").and_then(Value::as_f64).unwrap_or(1.0);
            let rank = map.get("r").and_then(Value::as_int).and_then(|r| u64::try_from(r).ok());
            let classes = map.get("target_modules").and_then(Value::as_list);
            let classes = classes.map_or(Vec::new(), |list| {
                list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
            });
            Ok(LoraGroup { alpha, rank, classes })
        })
        .collect()
}

/// Returns the alpha of the first group that applies to a module. Classes are recognised by the
/// module's name only; if that is ambiguous and the groups differ, returns an error.
fn alpha(groups: &[LoraGroup], module: &str, rank: u64) -> Result<f64> {
    let ranked: Vec<&LoraGroup> =
        groups.iter().filter(|group| group.rank.is_none_or(|own| own == rank)).collect();
    let same = |all: &[&LoraGroup]| match all {
        [first, rest @ ..] if rest.iter().all(|one| one.alpha == first.alpha) => Some(first.alpha),
        _ => None,
    };
    if let Some(alpha) = same(&ranked) {
        return Ok(alpha);
    }
    let about = |group: &&&LoraGroup| group.classes.iter().all(|class| is_on_path(class, module));
    match ranked.iter().find(about) {
        Some(group) => Ok(group.alpha),
        None => Err(Error::refused(format!(
            "no group of model.lora_params has rank {rank} and matches this module"
        ))),
    }
}

/// Returns whether a module of this class is the given one or contains it.
fn is_on_path(class: &str, module: &str) -> bool {
    match class {
        "Linear" => !module.contains("embedding"),
        "Embedding" => module.contains("embedding"),
        "MultiheadAttention" | "MultiQueryAttention" => {
            module.contains("self_attn") || module.contains("multihead_attn")
        }
        "FeedForwardNetwork" => module.contains(".ffn."),
        "TransformerDecoder" | "TransformerDecoderLayer" => module.contains("decoder"),
        "TransformerEncoder" | "TransformerEncoderLayer" => module.contains("encoder"),
        _ => false,
    }
}

fn check_partner(state: &State, key: &str) -> Result<()> {
    let module = key.trim_end_matches(".lora_A").trim_end_matches(".lora_B");
    for name in ["weight", "lora_A", "lora_B"] {
        let other = format!("{module}.{name}");
        if state.tensor(&other).is_none() {
            return Err(Error::refused(format!("`{key}` exists, but `{other}` doesn't")));
        }
    }
    Ok(())
}

/// Returns the config of the folded model.
fn without_lora(config: &Value, embeddings: bool) -> (Value, Vec<String>) {
    let mut config = config.clone();
    let mut notes = Vec::new();
    let in_trainer = ["trainer", "init", "model"];
    let path: &[&str] = match config.as_map().is_some_and(|map| map.contains("trainer")) {
        true => &in_trainer,
        false => &in_trainer[2..],
    };
    let mut at = Some(&mut config);
    for step in path {
        at = at.and_then(Value::as_map_mut).and_then(|map| map.get_mut(step));
    }
    if let Some(model) = at.and_then(Value::as_map_mut) {
        model.remove("lora_params");
        let shared = model.get("share_embedding_weights").is_none_or(Value::is_true);
        if embeddings && shared {
            model.set("share_embedding_weights", false);
            notes.push(
                "the embeddings were folded and the head was not: share_embedding_weights is \
                 false now"
                    .to_owned(),
            );
        }
    }
    (config, notes)
}

#[cfg(test)]
mod tests {
    use statelens_checkpoint::{Builder, DType, Dict, FileSet, FormatInfo, Int, Limits, ValueId};

    use super::*;
    use crate::config::{Language, parse};

    /// The state of the optimizer is that of the thin matrices; everything else stays.
    #[test]
    fn keeps_all_states_but_that_of_the_optimizer() {
        let mut builder = Builder::new(&Limits::default());
        let tensor = |builder: &mut Builder, shape: [u64; 2]| {
            let bytes = vec![0; (shape[0] * shape[1] * 4) as usize];
            let tensor = Tensor::new(DType::F32, shape.to_vec(), Layout::Inline(bytes.into()));
            let id = builder.push_tensor(tensor).unwrap();
            builder.push(CheckpointValue::Tensor(id)).unwrap()
        };
        let model = vec![
            ("fc.weight".into(), tensor(&mut builder, [4, 6])),
            ("fc.lora_A".into(), tensor(&mut builder, [2, 6])),
            ("fc.lora_B".into(), tensor(&mut builder, [4, 2])),
        ];
        let moment = vec![("0.exp_avg".into(), tensor(&mut builder, [2, 6]))];
        let dict = |builder: &mut Builder, entries: Vec<(DictKey, ValueId)>| {
            builder.push(CheckpointValue::Dict(Dict { entries, ..Dict::default() })).unwrap()
        };
        let states = [dict(&mut builder, model), dict(&mut builder, moment)];
        let step = builder.push(CheckpointValue::Int(Int::from(7_i64))).unwrap();
        let states = vec![
            ("global_step".into(), step),
            ("model".into(), states[0]),
            ("optimizer".into(), states[1]),
        ];
        let root = dict(&mut builder, states);
        let (format, files) = (FormatInfo::default(), FileSet::default());
        let source = builder.finish(root, format, files, Vec::new()).unwrap();
        let config = parse("model: {lora_params: {r: 2, alpha: 4}}", Language::Yaml).unwrap();
        let folded = fold(&source, &config).unwrap();
        let leaves = folded.checkpoint.leaves();
        let keys: Vec<_> = leaves.iter().map(|leaf| leaf.flat.to_lossy().into_owned()).collect();
        assert_eq!(keys, ["global_step", "model.fc.weight"]);
        assert!(folded.notes.iter().any(|note| note.contains("`optimizer`")), "{:?}", folded.notes);
    }
}
