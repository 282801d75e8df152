//! Recognises the family of a checkpoint by its keys.

use statelens_checkpoint::{Checkpoint, Value, order};

use crate::config;
use crate::conversion::{RouteStep, components, model_of, unwrapped};
use crate::engine::{self, State};
use crate::families;
use crate::format::Implementation;
use crate::kinds::Kinds;
use crate::language::{RuleBlock, Side};
use crate::optimizer;

/// A possible family of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guess {
    pub family: String,
    /// The number of keys that its rules match.
    pub known: usize,
    pub keys: usize,
}

/// Returns whether it looks like a Cerebras checkpoint: it has a state `model`.
pub fn is_cerebras(checkpoint: &Checkpoint) -> bool {
    engine::dict(checkpoint, checkpoint.root(), "model")
        .is_some_and(|model| matches!(checkpoint.value(model), Value::Dict(_)))
}

/// Returns whether its state `model` has the keys of a Hugging Face model, as a plain PyTorch
/// training loop saves it: it names no release, and more of its keys match Hugging Face's than
/// Cerebras's.
pub fn is_training_state(checkpoint: &Checkpoint, unwrap: bool) -> bool {
    let known = |hf| by_keys(checkpoint, hf, unwrap).first().map_or(0, |guess| guess.known);
    is_cerebras(checkpoint) && release(checkpoint).is_none() && known(true) > known(false)
}

/// Returns whether it has the state of an optimizer.
pub fn has_optimizer(checkpoint: &Checkpoint) -> bool {
    optimizer::dict(checkpoint).is_some()
}

/// Returns the release that wrote a Cerebras checkpoint, if it is recorded.
pub fn release(checkpoint: &Checkpoint) -> Option<Implementation> {
    let list = engine::dict(checkpoint, checkpoint.root(), engine::METADATA)?;
    let Value::List(list) = checkpoint.value(list) else { return None };
    let version = engine::dict(checkpoint, *list.items.last()?, "version")?;
    let Value::Str(text) = checkpoint.value(version) else { return None };
    Implementation::of_version(&text.to_lossy())
}

/// Returns the keys of the model; with `unwrap`, as [`unwrapped`] returns them.
pub fn keys(checkpoint: &Checkpoint, hf: bool, unwrap: bool) -> Vec<String> {
    let format = if hf { Implementation::HuggingFace } else { Implementation::CURRENT };
    let Ok(state) = model_of(checkpoint, format).and_then(|model| State::of(checkpoint, model))
    else {
        return Vec::new();
    };
    let plain = |key: &str| if unwrap { unwrapped(key) } else { key.to_owned() };
    state.keys().map(plain).collect()
}

/// Returns the families that match at least nine tenths of the keys, the best first. With `unwrap`,
/// compares the keys as [`unwrapped`] returns them.
pub fn by_keys(checkpoint: &Checkpoint, hf: bool, unwrap: bool) -> Vec<Guess> {
    let keys = keys(checkpoint, hf, unwrap);
    if keys.is_empty() {
        return Vec::new();
    }
    let kinds = Kinds::of(&keys);
    let towards = if hf { Side::Right } else { Side::Left };
    let mut guesses = Vec::new();
    for name in families::names() {
        let Ok(recipe) = families::find(name) else { continue };
        let blocks = recipe.blocks.iter().filter(|block| identifies_family(block, hf));
        let counts = blocks.filter_map(|block| kinds.known(|key| block.knows(towards, key)));
        if let Some(known) = counts.max().filter(|known| *known > 0) {
            guesses.push(Guess { family: name.to_owned(), known, keys: keys.len() });
        }
    }
    order::by_key(&mut guesses, |guess| std::cmp::Reverse(guess.known));
    guesses
}

/// Returns whether the keys on a side of a block identify a family. Cerebras's checkpoint holds all
/// parts of a model, so the rules for each cover all keys. At Hugging Face, a part has the keys of
/// another family, and so has a model that is trained by DPO.
pub(crate) fn identifies_family(block: &RuleBlock, hf: bool) -> bool {
    (!hf || block.component.is_none() && block.base.is_none())
        && block.left.iter().any(|format| format.is_hf())
        && block.right.iter().any(|format| format.is_cerebras())
}

/// Returns the families whose parts have these folders, ordered by how many keys in the folders
/// their rules match.
pub fn by_parts(checkpoint: &Checkpoint, parts: &[String], target: Implementation) -> Vec<Guess> {
    let step = RouteStep { from: Implementation::HuggingFace, to: target };
    let part = |name: &str| {
        let part = engine::dict(checkpoint, checkpoint.root(), name)?;
        let state = State::of(checkpoint, part).ok()?;
        Some(state.keys().map(str::to_owned).collect::<Vec<_>>())
    };
    let keys: Vec<_> = parts.iter().map(|name| (name, part(name).unwrap_or_default())).collect();
    let mut guesses = Vec::new();
    for name in families::names() {
        let Ok(recipe) = families::find(name) else { continue };
        if parts.is_empty() || components(&recipe, step).len() != parts.len() {
            continue;
        }
        let known = keys.iter().map(|(name, keys)| {
            let own = recipe.blocks.iter().filter(|block| block.component.as_ref() == Some(name));
            let counts =
                own.filter_map(|block| Kinds::of(keys).known(|key| block.knows(Side::Right, key)));
            counts.max()
        });
        if let Some(known) = known.sum::<Option<usize>>() {
            let keys = keys.iter().map(|(_, keys)| keys.len()).sum();
            guesses.push(Guess { family: name.to_owned(), known, keys });
        }
    }
    order::by_key(&mut guesses, |guess| std::cmp::Reverse(guess.known));
    guesses
}

/// Returns the format of a checkpoint, if a recipe converts between it and Hugging Face and it is
/// neither Cerebras's nor has a file per rank. The recipe's rules must match some keys of the model
/// that the config names, or all keys if the config names none.
pub fn layout(checkpoint: &Checkpoint, config: Option<&config::Value>) -> Option<Implementation> {
    let keys = keys(checkpoint, true, false);
    let kind = config.and_then(model_type);
    families::names().filter_map(|name| families::find(name).ok()).find_map(|recipe| {
        let by_type = kind.map(|kind| recipe.model_types.iter().any(|own| own == kind));
        recipe.blocks.iter().filter(|block| block.ranks.is_none()).find_map(|block| {
            let (format, towards) = match (&block.left[..], &block.right[..]) {
                ([left], [right]) if left.is_hf() => (*right, Side::Left),
                ([left], [right]) if right.is_hf() => (*left, Side::Right),
                _ => return None,
            };
            let named = keys.iter().filter(|key| block.names(towards, key)).count();
            let is_so = named > 0 && by_type.unwrap_or(named == keys.len());
            (!format.is_cerebras() && is_so).then_some(format)
        })
    })
}

/// Returns the `model_type` of Hugging Face's config.
fn model_type(config: &config::Value) -> Option<&str> {
    config.as_map()?.get("model_type")?.as_str()
}

/// Returns the families with a step between these formats, one of which is neither Cerebras's nor
/// Hugging Face's, whose rules match some of the keys. Families of the config's `model_type` come
/// first, then those that match the most keys.
pub fn between(
    checkpoint: &Checkpoint,
    config: &config::Value,
    from: Implementation,
    to: Implementation,
) -> Vec<Guess> {
    let Ok(state) = model_of(checkpoint, from).and_then(|model| State::of(checkpoint, model))
    else {
        return Vec::new();
    };
    let keys: Vec<&str> = state.keys().collect();
    let kind = model_type(config);
    let mut guesses = Vec::new();
    for name in families::names() {
        let Ok(recipe) = families::find(name) else { continue };
        let ways = recipe.blocks.iter().filter_map(|block| Some((block, block.towards(from, to)?)));
        let counts = ways.map(|(block, to)| keys.iter().filter(|key| block.names(to, key)).count());
        if let Some(known) = counts.max().filter(|known| *known > 0) {
            let by_type = kind.is_some_and(|kind| recipe.model_types.iter().any(|own| own == kind));
            guesses.push((by_type, Guess { family: name.to_owned(), known, keys: keys.len() }));
        }
    }
    let by_type = guesses.iter().any(|(by_type, _)| *by_type);
    guesses.retain(|(own, _)| *own == by_type);
    order::by_key(&mut guesses, |(_, guess)| std::cmp::Reverse(guess.known));
    guesses.into_iter().map(|(_, guess)| guess).collect()
}
