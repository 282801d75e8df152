//! Converts a checkpoint from one format to another: finds the blocks of a recipe that lead there,
//! and applies them.

use std::collections::{HashMap, VecDeque};

use statelens_checkpoint::{
    Checkpoint, DictKey, Error, Finding, FindingKind, Grade, Limits, Result, Setting, Value,
    ValueId, advice, counted, order,
};

use crate::config;
use crate::engine::{
    self, Applied, ApplyOptions, Assembly, Configs, Move, MoveKind, State, StateValue, Unmatched,
    apply,
};
use crate::families;
use crate::format::{Implementation, Variant};
use crate::language::{Expression, Ranks, Recipe, RuleBlock, Scope, Side};
use crate::optimizer::{Moved, Optimizer};
use crate::ranks;

/// One step of the route from one format to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteStep {
    pub from: Implementation,
    pub to: Implementation,
}

/// A step with the configs of both sides.
#[derive(Debug, Clone)]
pub struct StepConfigs {
    pub step: RouteStep,
    /// The config of the left side: Hugging Face, or the older release. If Hugging Face has several
    /// parts, a dict of their configs.
    pub left: config::Value,
    pub right: config::Value,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct ModelOptions {
    /// Drop keys that no rule covers.
    pub drop_unmatched: bool,
    /// Remove what wrapping a module has added to keys: see [`unwrapped`].
    pub unwrap: bool,
    /// Convert the optimizer's moments as the parameters are.
    pub with_optimizer: bool,
    /// The number of files of a side that is split into ranks; 0 means one.
    pub ranks: u64,
}

/// Removes what wrapping a module has added to a key: `module.` at its start by
/// `DistributedDataParallel` and DeepSpeed, `_orig_mod.` anywhere by `torch.compile`,
/// `_fsdp_wrapped_module.` and `_checkpoint_wrapped_module.` by `FullyShardedDataParallel` and
/// checkpointing of activations.
pub fn unwrapped(key: &str) -> String {
    const ANYWHERE: [&str; 3] =
        ["_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module."];
    let mut key = key.to_owned();
    loop {
        let before = key.len();
        if let Some(rest) = key.strip_prefix("module.") {
            key = rest.to_owned();
        }
        for part in ANYWHERE {
            key = key.replace(part, "");
        }
        if key.len() == before {
            return key;
        }
    }
}

/// The name that Hugging Face's trainer gives to the file with the optimizer's state, and the name
/// of the part of a [`ModelConversion`] that holds it.
pub const OPTIMIZER_FILE: &str = "optimizer.pt";

#[derive(Debug, Default)]
pub struct ModelConversion {
    /// The checkpoints: one, or one per part, with the name of its folder.
    pub parts: Vec<(Option<String>, Checkpoint)>,
    /// Keys that were dropped because no rule covers them.
    pub unmatched: Vec<Unmatched>,
    /// The old and new keys of each rule that was applied, step by step.
    pub moves: Vec<Move>,
    /// The number of `moves` at the end of each step.
    pub ends: Vec<usize>,
}

impl ModelConversion {
    /// Returns the keys of the output that are filled with random numbers.
    pub fn random(&self) -> impl Iterator<Item = &str> {
        let made = self.moves.iter().filter(|one| one.kind == MoveKind::Create { random: true });
        made.flat_map(|one| &one.to).map(String::as_str)
    }
}

pub fn route(recipe: &Recipe, from: Implementation, to: Implementation) -> Result<Vec<RouteStep>> {
    let mut before: HashMap<Implementation, RouteStep> = HashMap::new();
    let mut open = VecDeque::from([from]);
    while let Some(at) = open.pop_front() {
        if at == to {
            break;
        }
        // Formats other than Cerebras's have files of tensors only, so a route can't pass through
        // them.
        if !at.is_cerebras() && at != from {
            continue;
        }
        for step in steps_from(recipe, at) {
            if step.to != from && !before.contains_key(&step.to) {
                before.insert(step.to, step);
                open.push_back(step.to);
            }
        }
    }
    let mut way = Vec::new();
    let mut at = to;
    while at != from {
        let Some(step) = before.get(&at) else { return Err(no_way(recipe, from, to)) };
        way.push(*step);
        at = step.from;
    }
    match way.is_empty() {
        true => Err(Error::refused(format!("the checkpoint already has the format {from}"))),
        false => {
            way.reverse();
            Ok(way)
        }
    }
}

/// Converts the checkpoint, one stage after the other. `params` is the whole new config, which
/// Cerebras's checkpoints include.
///
/// If a Hugging Face model is in several folders, `source` has a dict for each, by its name.
pub fn convert(
    source: &Checkpoint,
    recipe: &Recipe,
    stages: &[StepConfigs],
    params: &config::Value,
    requested: ModelOptions,
) -> Result<ModelConversion> {
    let (Some(first), Some(last)) = (stages.first(), stages.last()) else {
        return Err(Error::refused("there is nothing to convert"));
    };
    let (first, last) = (first.step, last.step);
    let (mut states, ranks) = match ranked(recipe, first, first.from) {
        Some(_) => {
            let (state, ranks) = ranks::read(source)?;
            (vec![(None, state)], ranks)
        }
        None => (states(source, recipe, first)?, requested.ranks.max(1)),
    };
    Limits::check("ranks", ranks, ranks::MAX_RANKS as u64)?;
    if requested.unwrap {
        for (_, state) in &mut states {
            let keys = state.len();
            *state = std::mem::take(state).renamed(|key| unwrapped(&key));
            if state.len() < keys {
                return Err(Error::refused(
                    "two keys are the same without the prefixes of wrappers",
                )
                .advice(advice!["Convert without ", Setting::Unwrap, "."]));
            }
        }
    }
    let original =
        states.first().map(|(_, state)| state.clone()).filter(|_| requested.with_optimizer);
    if requested.with_optimizer
        && (states.len() != 1
            || ranked(recipe, first, first.from).is_some()
            || ranked(recipe, last, last.to).is_some()
            || !components(recipe, last).is_empty())
    {
        return Err(Error::refused("the optimizer of a model in several parts can't be converted")
            .advice(advice!["Convert without ", Setting::WithOptimizer, "."]));
    }
    let mut done = ModelConversion::default();
    let mut only_model = false;
    let options = ApplyOptions { ranks, ..ApplyOptions::default() };
    for stage in stages {
        states = step(recipe, stage, states, options, &mut done, &mut only_model)?;
        done.ends.push(done.moves.len());
    }
    if !done.unmatched.is_empty() && !requested.drop_unmatched {
        return Err(unmatched(&done.unmatched));
    }
    for (name, mut state) in states {
        state.room()?;
        if !last.to.is_cerebras() {
            check_tensors(&state)?;
        }
        if let Some((block, own)) = ranked(recipe, last, last.to) {
            done.parts.extend(ranks::write(source, &state, block, own, ranks)?);
            continue;
        }
        let mut assembly = Assembly::of(source);
        let optimizer = match &original {
            Some(model) => {
                let mut own = Assembly::of(source);
                let to = if last.to.is_cerebras() { &mut assembly } else { &mut own };
                let id = carried(source, recipe, stages, model, &done.moves, requested, to)?;
                if !last.to.is_cerebras() {
                    done.parts.push((Some(OPTIMIZER_FILE.to_owned()), own.finish(id)?));
                }
                Some((DictKey::from("optimizer"), id))
            }
            None => None,
        };
        let root = if !last.to.is_cerebras() {
            assembly.state(&state)?
        } else if !first.from.is_cerebras() || only_model {
            let model = assembly.state(&state)?;
            let model = (DictKey::from("model"), model);
            assembly.dict(std::iter::once(model).chain(optimizer).collect())?
        } else {
            let mut entries = engine::entries(source, first.from, &mut assembly, &mut state)?;
            if let Some((key, id)) = optimizer {
                entries.retain(|(own, _)| *own != key);
                entries.push((key, id));
            }
            let model = assembly.state(&state)?;
            entries.push((DictKey::from("model"), model));
            let metadata = engine::metadata(source, last.to, params, &mut assembly)?;
            entries.push((DictKey::from(engine::METADATA), metadata));
            assembly.dict(entries)?
        };
        if source.format.traits.file_metadata.is_some() {
            assembly.keep_attributes(source.root(), root);
        }
        let mut part = assembly.finish(root)?;
        part.findings.extend(versions_left_out(source, first.from));
        done.parts.push((name, part));
    }
    Ok(done)
}

/// Returns the finding that versions of modules are not converted; `None` without versions.
fn versions_left_out(source: &Checkpoint, from: Implementation) -> Option<Finding> {
    let model = model_of(source, from).unwrap_or_else(|_| source.root());
    source.attributes(source.resolve(model))?;
    Some(
        Finding::new(Grade::Note, "Python attributes of dicts (`_metadata`) are left out")
            .kind(FindingKind::LeftOut)
            .detail("They describe the modules of the old format."),
    )
}

/// Returns the section of a config that describes the model.
pub fn model_section(config: &config::Value) -> &config::Value {
    let step = |at: &'static str, of| config::Value::as_map(of).and_then(|map| map.get(at));
    step("trainer", config)
        .and_then(|trainer| step("init", trainer))
        .and_then(|init| step("model", init))
        .or_else(|| step("model", config).filter(|model| model.as_map().is_some()))
        .unwrap_or(config)
}

type States = Vec<(Option<String>, State)>;

/// Returns the state of the model, or of its parts.
fn states(source: &Checkpoint, recipe: &Recipe, first: RouteStep) -> Result<States> {
    let components = components(recipe, first);
    if !first.from.is_hf() || components.is_empty() {
        return Ok(vec![(None, State::of(source, model_of(source, first.from)?)?)]);
    }
    components
        .into_iter()
        .map(|name| {
            let part = engine::dict(source, source.root(), &name).ok_or_else(|| {
                Error::refused(format!("the folder {name} is missing")).advice(
                    "A model of several parts is converted from a folder that has a folder for \
                     each part.",
                )
            })?;
            Ok((Some(name), State::of(source, part)?))
        })
        .collect()
}

/// Returns the names of the parts that the blocks of a step convert.
pub fn components(recipe: &Recipe, step: RouteStep) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (block, _) in blocks(recipe, step) {
        if let Some(name) = &block.component
            && !names.contains(name)
        {
            names.push(name.clone());
        }
    }
    names
}

fn blocks(recipe: &Recipe, step: RouteStep) -> impl Iterator<Item = (&RuleBlock, Side)> {
    recipe.blocks.iter().filter_map(move |block| Some((block, block.towards(step.from, step.to)?)))
}

fn carried(
    source: &Checkpoint,
    recipe: &Recipe,
    stages: &[StepConfigs],
    model: &State,
    moves: &[Move],
    requested: ModelOptions,
    assembly: &mut Assembly<'_>,
) -> Result<ValueId> {
    let dropped = moves.iter().filter(|one| one.to.is_empty());
    let dropped: Vec<String> = dropped.flat_map(|one| one.from.iter().cloned()).collect();
    let rename = |key: &str| if requested.unwrap { unwrapped(key) } else { key.to_owned() };
    let optimizer = Optimizer::of(source, model, &dropped, &rename)?;
    let options = ApplyOptions { moments: true, ..ApplyOptions::default() };
    let mut carry = |state: State| {
        let mut states = vec![(None, state)];
        let mut steps = Vec::new();
        for stage in stages {
            let mut done = ModelConversion::default();
            states = step(recipe, stage, states, options, &mut done, &mut false)?;
            steps.push(done.moves);
        }
        let state = states.pop().map(|(_, state)| state).unwrap_or_default();
        Ok(Moved { state, steps })
    };
    let carried = optimizer.carried(source, model, &mut carry, assembly);
    carried.map_err(|error| error.context("the optimizer"))
}

/// Returns the block of a step whose side with this format has a file per rank.
fn ranked(
    recipe: &Recipe,
    step: RouteStep,
    format: Implementation,
) -> Option<(&RuleBlock, &Ranks)> {
    blocks(recipe, step).find_map(|(block, _)| {
        let ranks = block.ranks.as_ref()?;
        let formats = if ranks.side == Side::Left { &block.left } else { &block.right };
        formats.contains(&format).then_some((block, ranks))
    })
}

pub(crate) fn model_of(source: &Checkpoint, format: Implementation) -> Result<ValueId> {
    let root = source.root();
    if format.is_cerebras() {
        return engine::dict(source, root, "model").ok_or_else(|| {
            Error::refused("the checkpoint has no `model` state").advice(advice![
                "If it is a Hugging Face checkpoint, use ",
                Setting::FromHuggingFace,
                "."
            ])
        });
    }
    let tensors = |id: ValueId| match source.value(source.resolve(id)) {
        Value::Dict(dict) => {
            dict.entries.iter().filter(|(_, id)| source.tensor_of(*id).is_some()).count()
        }
        _ => 0,
    };
    // A training loop may save single tensors next to the model, for example the state of the
    // random number generator.
    let own = tensors(root);
    let wrapped = ["state_dict", "model", "module"].into_iter();
    let mut wrapped = wrapped.filter_map(|name| engine::dict(source, root, name));
    Ok(wrapped.find(|id| tensors(*id) > own).unwrap_or(root))
}

fn step(
    recipe: &Recipe,
    stage: &StepConfigs,
    states: States,
    options: ApplyOptions,
    done: &mut ModelConversion,
    only_model: &mut bool,
) -> Result<States> {
    let step = stage.step;
    let mut targets: States = Vec::new();
    let mut used: Vec<Option<&String>> = Vec::new();
    let mut known = false;
    for (block, towards) in blocks(recipe, step) {
        known = true;
        let component = block.component.as_ref();
        if used.contains(&component) {
            continue;
        }
        let part = component.and_then(|name| stage.left.as_map()?.get(name));
        let configs = Configs {
            left: model_section(part.unwrap_or(&stage.left)),
            right: model_section(&stage.right),
        };
        if !holds(block, configs)? {
            continue;
        }
        used.push(component);
        *only_model |= block.only_model;
        let own = states.iter().find(|(name, _)| name.as_ref() == component);
        let Some((_, source)) = own.or(states.first()) else { continue };
        let nan_to_zero = step.to.is_hf() && is_sideband(&stage.right);
        let options = ApplyOptions { nan_to_zero: nan_to_zero && !options.moments, ..options };
        let applied = match &block.base {
            None => apply(block, towards, source, configs, options)?,
            Some(base) => on_base(block, base, step, towards, source, configs, options)?,
        };
        done.unmatched.extend(applied.unmatched);
        done.moves.extend(applied.moves);
        let name = component.cloned().filter(|_| towards == Side::Left);
        match targets.iter_mut().find(|(own, _)| *own == name) {
            Some((_, target)) => target.extend(applied.state),
            None => targets.push((name, applied.state)),
        }
    }
    match used.is_empty() {
        false => Ok(targets),
        // No key has changed between these releases.
        true if !known => Ok(states),
        true => Err(Error::refused(format!(
            "the recipe of {} has no rules for this config between {} and {}",
            recipe.family, step.from, step.to
        ))),
    }
}

/// Applies the rules of the family that the config names, together with those of the block.
fn on_base(
    block: &RuleBlock,
    base: &Expression,
    step: RouteStep,
    towards: Side,
    source: &State,
    configs: Configs<'_>,
    options: ApplyOptions,
) -> Result<Applied> {
    let name = match base.value(&OfConfigs(configs))? {
        config::Value::Text(name) => name,
        other => {
            return Err(Error::refused(format!(
                "the config does not name its base model: {}",
                other.quoted()
            ))
            .expected(format!("a name as `{base}`")));
        }
    };
    let family = families::find(&name).or_else(|_| families::find(&name.replace('_', "-")))?;
    let mut found = None;
    for (own, side) in blocks(&family, RouteStep { from: step.from.plain(), to: step.to.plain() }) {
        if holds(own, configs)? && side == towards && own.component.is_none() {
            found = Some(own);
            break;
        }
    }
    let found = found.ok_or_else(|| {
        Error::refused(format!("{name} has no rules between {} and {}", step.from, step.to))
    })?;
    let plain = ApplyOptions { moments: options.moments, ..ApplyOptions::default() };
    let (first, second) = match towards {
        Side::Right => ((found, options), (block, plain)),
        Side::Left => ((block, plain), (found, options)),
    };
    let first = apply(first.0, towards, source, configs, first.1)?;
    let mut applied = apply(second.0, towards, &first.state, configs, second.1)?;
    applied.unmatched.splice(0..0, first.unmatched);
    applied.moves.splice(0..0, first.moves);
    Ok(applied)
}

/// Returns whether the condition of a block holds.
fn holds(block: &RuleBlock, configs: Configs<'_>) -> Result<bool> {
    block.when.as_ref().map_or(Ok(true), |when| when.is_true(&OfConfigs(configs)))
}

/// Returns whether pruned weights are saved as NaN, as one method of sparse training does.
fn is_sideband(config: &config::Value) -> bool {
    let sparsity = config.as_map().and_then(|map| map.get("sparsity"));
    let kind = sparsity.and_then(config::Value::as_map).and_then(|map| map.get("type"));
    kind.and_then(config::Value::as_str) == Some("sideband")
}

fn steps_from(recipe: &Recipe, from: Implementation) -> Vec<RouteStep> {
    let mut found = Vec::new();
    for block in &recipe.blocks {
        for to in block.left.iter().chain(&block.right) {
            if block.towards(from, *to).is_some() && *to != from {
                found.push(RouteStep { from, to: *to });
            }
        }
    }
    // Neighbouring releases with the same keys.
    if let Some(release) = from.release().filter(|release| release.variant == Variant::Plain) {
        let own = (release.major, release.minor);
        let at = Implementation::RELEASES.iter().position(|one| *one == own).unwrap_or(0);
        let oldest = oldest(recipe);
        for to in [at.wrapping_sub(1), at + 1] {
            if let Some((major, minor)) = Implementation::RELEASES.get(to) {
                let to = Implementation::cerebras(*major, *minor);
                let old = own.min((*major, *minor));
                let known = found.iter().any(|step| step.to == to);
                if !known && old >= (1, 8) && oldest.is_some_and(|oldest| old >= oldest) {
                    found.push(RouteStep { from, to });
                }
            }
        }
    }
    found
}

fn oldest(recipe: &Recipe) -> Option<(u8, u8)> {
    let all = recipe.blocks.iter().flat_map(|block| block.left.iter().chain(&block.right));
    all.filter_map(|format| format.version()).min()
}

fn check_tensors(state: &State) -> Result<()> {
    match state.iter().find(|(_, item)| !matches!(item, StateValue::Tensor(..))) {
        Some((key, _)) => Err(Error::refused(format!("`{key}` is not a tensor"))),
        None => Ok(()),
    }
}

fn no_way(recipe: &Recipe, from: Implementation, to: Implementation) -> Error {
    let mut known: Vec<Implementation> = recipe
        .blocks
        .iter()
        .flat_map(|block| block.left.iter().chain(&block.right))
        .copied()
        .collect();
    order::natural(&mut known);
    known.dedup();
    let known: Vec<String> = known.iter().map(Implementation::to_string).collect();
    Error::refused(format!("the recipe of {} has no way from {from} to {to}", recipe.family))
        .expected(known.join(", "))
}

/// Returns the error for keys without a rule; lists them with the nearest rule of each.
fn unmatched(all: &[Unmatched]) -> Error {
    let lines: Vec<String> = all.iter().map(Unmatched::to_string).collect();
    refused_for(all, &format!(": {}", lines.join(", ")))
}

/// Returns the error for keys without a rule, for callers that have listed them already.
pub fn refuse_unmatched(all: &[Unmatched]) -> Error {
    refused_for(all, "")
}

fn refused_for(all: &[Unmatched], list: &str) -> Error {
    let of_lora = all.iter().any(|one| one.key.ends_with(".lora_A"));
    let wrapped = all.iter().any(|one| unwrapped(&one.key) != one.key);
    let what = counted(all.len() as u64, "key");
    Error::refused(format!("no rule covers {what}{list}")).advice(match (of_lora, wrapped) {
        (true, _) => advice!["Fold LoRA into the weights with ", Setting::FoldLora, "."],
        (_, true) => advice!["These are keys of a wrapped model: use ", Setting::Unwrap, "."],
        _ => advice![
            "Leave them out with ",
            Setting::DropUnmatched,
            ", or write rules for them: ",
            Setting::Recipe,
            "."
        ],
    })
}

/// The scope of a block's condition: only the configs.
struct OfConfigs<'a>(Configs<'a>);

impl Scope for OfConfigs<'_> {
    fn config(&self, side: Side, path: &[String]) -> Option<&config::Value> {
        engine::lookup(self.0, side, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route_of(family: &str, from: &str, to: &str) -> String {
        let recipe = families::find(family).unwrap();
        match route(&recipe, from.parse().unwrap(), to.parse().unwrap()) {
            Ok(way) => way.iter().map(|step| step.to.to_string()).collect::<Vec<_>>().join(" "),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn removes_wrapper_prefixes_from_keys() {
        for (key, plain) in [
            ("module.wte.weight", "wte.weight"),
            ("_orig_mod.module.wte.weight", "wte.weight"),
            ("module._fsdp_wrapped_module.h.0._fsdp_wrapped_module.ln.bias", "h.0.ln.bias"),
            ("h.0._checkpoint_wrapped_module.ln.bias", "h.0.ln.bias"),
            ("projection.module.weight", "projection.module.weight"),
        ] {
            assert_eq!(unwrapped(key), plain);
        }
    }

    #[test]
    fn chains_steps_but_not_through_hugging_face() {
        assert_eq!(route_of("gpt2", "hf", "cs-2.9"), "cs-2.9");
        assert_eq!(route_of("gpt2", "cs-2.10", "hf"), "hf");
        assert_eq!(route_of("gpt2", "cs-1.8", "cs-2.4"), "cs-2.0 cs-2.1 cs-2.2 cs-2.3 cs-2.4");
        assert_eq!(route_of("gpt2", "hf", "cs-1.8"), "cs-2.1 cs-2.0 cs-1.8");
        assert!(route_of("gemma2", "cs-2.2", "cs-2.3").contains("no way"));
        assert!(route_of("gpt2", "cs-2.1", "cs-2.1").contains("already has the format"));
    }
}
