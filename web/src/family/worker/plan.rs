//! Plans converting a model from one implementation to another.

use std::sync::Arc;

use statelens_checkpoint::{Checkpoint, Error, Result, Value, advice};
use statelens_convert::{CastRule, Edit, plan_edited, shard_size};
use statelens_formats::{RequestedOptions as Versions, Shards};
use statelens_recipes::Implementation;
use statelens_recipes::config::{self, Converted, Families, Language};
use statelens_recipes::conversion::{
    ModelConversion, ModelOptions, OPTIMIZER_FILE, RouteStep, convert,
};
use statelens_recipes::engine::RULE_CODE;
use statelens_recipes::inference::{stages, stem};
use statelens_recipes::language::RECIPE_CODE;

use super::recognition::ConversionInputs;
use super::{configs, load_check, rows};
use crate::convert::message::{ConvertOptions, PlanSummary};
use crate::family::message::{ConversionOutcome, FamilyRequest, NamedText};
use crate::plan::worker::PlannedOutput;
use crate::state::fmt::plural;
use crate::worker::command_line::command_line;
use crate::worker::job::Job;
use crate::worker::opened::OpenCheckpoint;
use crate::{plan, text};

/// The name of a Hugging Face config.
const CONFIG: &str = "config.json";
/// The default shard size of Hugging Face files.
const SHARD: &str = "10GB";

/// Plans a conversion that keeps the names. If requested, the adapter is folded into the model
/// first.
pub(crate) fn plain(
    open: &OpenCheckpoint,
    options: &ConvertOptions,
    inputs: Option<&ConversionInputs>,
    job: &Job,
) -> Result<(PlannedOutput, PlanSummary)> {
    let folds =
        |found: &&ConversionInputs| options.family.fold && !found.recognised.adapter.is_empty();
    let Some(found) = inputs.filter(folds) else { return plan::worker::plan(open, options, job) };
    found.load_error.clone().map_or(Ok(()), Err)?;
    let (checkpoint, limits) = (found.checkpoint.clone(), open.limits.clone());
    let folded = OpenCheckpoint::new(checkpoint, open.leaves.clone(), open.sources.clone(), limits);
    let (mut output, mut planned) = plan::worker::plan(&folded, options, job)?;
    // The folded model is loaded from a folder, with its config.
    let is_its = |config: &NamedText| config.name.rsplit('/').next() == Some(CONFIG);
    let config = found.config.clone().filter(is_its);
    let config = config.filter(|_| options.to == "safetensors");
    output.texts.extend(config.map(|config| (CONFIG.to_owned(), config.text)));
    let (name, family) = (options.name.clone(), options.family.clone());
    let only = ConvertOptions { to: "safetensors".to_owned(), name, family, ..Default::default() };
    let fold = fold_command(open, found);
    planned.command = match *options == only {
        true => fold,
        false => format!("{fold} && {}", planned.command),
    };
    Ok((output, planned))
}

/// Returns the command that folds the adapter.
fn fold_command(open: &OpenCheckpoint, inputs: &ConversionInputs) -> String {
    let source = open.source_name();
    command_line(&["fold-lora", &source, "--adapter", &inputs.recognised.adapter])
}

/// A converted model, ready to be planned.
pub(crate) struct ReadyConversion {
    to: Implementation,
    output: Checkpoint,
    optimizer: Option<Checkpoint>,
    config: Option<NamedText>,
    casts: Vec<CastRule>,
    keys: u64,
}

impl ReadyConversion {
    pub(crate) fn keys(&self) -> u64 {
        self.keys
    }
}

/// Converts the model, and describes the outcome as far as it got.
pub(crate) fn table(
    options: &ConvertOptions,
    target: &str,
    inputs: &ConversionInputs,
) -> (Result<ReadyConversion>, ConversionOutcome) {
    let mut shown =
        ConversionOutcome { recipe: inputs.rules.clone(), ..ConversionOutcome::default() };
    let ready = converted(options, target, inputs, &mut shown).map_err(|error| {
        // If the config belongs to another model, report that rather than the error it leads to,
        // even if a rule failed.
        match inputs.recognised.mismatch.is_empty() || is_of_text(&error) {
            true => error,
            false => Error::refused(inputs.recognised.mismatch.trim_end_matches('.').to_owned())
                .advice("Choose the config of this model."),
        }
    });
    if let Err(error) = &ready
        && is_of_rules(error)
    {
        let mut wrong = text::error(error);
        // File names and lines are quoted without changes.
        if is_of_text(error) {
            error.what().clone_into(&mut wrong.title);
        }
        wrong.next =
            error.next_step().map(|text| (text.to_string(), String::new())).into_iter().collect();
        shown.wrong = Some(wrong);
    }
    (ready, shown)
}

/// Returns whether an error is about a line of the rules.
fn is_of_rules(error: &Error) -> bool {
    is_of_text(error) || error.code() == RULE_CODE
}

/// Returns whether an error says that the text of the rules can't be parsed.
fn is_of_text(error: &Error) -> bool {
    error.code() == RECIPE_CODE
}

fn converted(
    options: &ConvertOptions,
    target: &str,
    found: &ConversionInputs,
    shown: &mut ConversionOutcome,
) -> Result<ReadyConversion> {
    let request = &options.family;
    found.load_error.clone().map_or(Ok(()), Err)?;
    let recipe = found.recipe.as_ref().map_err(Clone::clone)?;
    let step = found.step(target)?;
    let model = match (&request.model, &request.recipe) {
        (None, Some(_)) => &recipe.family,
        _ => &found.recognised.model,
    };
    let (stages, mut converted) = stages(recipe, model, step, found.value.as_ref())?;
    let params = converted.as_ref().map(|converted| converted.config.clone());
    let params = params.or(found.value.clone()).unwrap_or(config::Value::Null);
    // Drop uncovered keys here in any case, so that all of them are listed; below they are an error
    // if dropping them was not requested.
    let requested = ModelOptions {
        drop_unmatched: true,
        unwrap: request.unwrap,
        with_optimizer: request.with_optimizer && found.recognised.optimizer,
        ..ModelOptions::default()
    };
    let done = convert(&found.checkpoint, recipe, &stages, &params, requested)?;
    shown.rows = rows::rows(&done);
    shown.unmatched = done.unmatched.len() as u64;
    let random: Vec<String> = done.random().map(|key| format!("`{key}`")).collect();
    let casts = plan::worker::casts(options);
    let stays = match (&mut converted, &casts) {
        (Some(converted), Ok(casts)) if !casts.is_empty() => {
            converted.cast(CastRule::of_all(casts))
        }
        _ => None,
    };
    let config = converted.as_ref().map(|converted| new_config(converted, step.to, found));
    if let (Some(converted), Some(old), Some(new)) = (&converted, &found.config, &config) {
        shown.config = Some(configs::configs(old, new, converted));
        shown.notes = converted.notes.clone();
    }
    shown.notes.extend(stays);
    if !random.is_empty() {
        let keys = random.join(", ");
        shown.notes.push(format!("Not in the checkpoint, initialised with random numbers: {keys}"));
    }
    let (output, optimizer) = only(done, converted.as_ref(), shown)?;
    shown.keys = (before(&found.checkpoint, step), output.leaves().len() as u64);
    shown.notes.extend(left_out(&found.checkpoint, step, optimizer.is_some()));
    // The config of a model split by rank describes its own layout, so there is nothing to check
    // the result against.
    let checked = Some(&params).filter(|params| !params.is_null() && !found.ranked);
    shown.loads = Some(load_check::check(&output, step.to, checked, shown.unmatched)?);
    if shown.unmatched > 0 && !request.drop_unmatched {
        let what = plural(shown.unmatched, "key");
        let of_lora = shown.rows.iter().any(|row| row.unmatched && row.old.ends_with(".lora_A"));
        return Err(Error::refused(format!("no rule covers {what}"))
            .expected("a rule for each key; the table lists those without one first")
            .advice(match of_lora {
                true => advice!["The command merges the adapter into the weights"]
                    .command("statelens fold-lora"),
                false => "Edit the rules, or leave these keys out.".into(),
            }));
    }
    let keys = shown.keys.1;
    Ok(ReadyConversion { to: step.to, output, optimizer, config, casts: casts?, keys })
}

/// Returns the resulting checkpoint, and the optimizer if it is a separate file; an error if there
/// are several checkpoints.
fn only(
    mut done: ModelConversion,
    converted: Option<&Converted>,
    shown: &mut ConversionOutcome,
) -> Result<(Checkpoint, Option<Checkpoint>)> {
    let several = converted.is_some_and(|converted| !converted.parts.is_empty());
    let of_trainer = |(name, _): &(Option<String>, _)| name.as_deref() == Some(OPTIMIZER_FILE);
    let optimizer = done.parts.iter().position(of_trainer).map(|at| done.parts.remove(at).1);
    match <[_; 1]>::try_from(done.parts) {
        Ok([(None, output)]) if !several => Ok((output, optimizer)),
        _ => {
            shown.config = None;
            Err(Error::unsupported("Hugging Face stores this model as a folder for each part")
                .advice("A page can't save folders: convert it with `statelens convert-model`."))
        }
    }
}

/// Plans the files.
pub(crate) fn plan(
    open: &OpenCheckpoint,
    options: &ConvertOptions,
    ready: ReadyConversion,
    found: &ConversionInputs,
    job: &Job,
) -> Result<(PlannedOutput, PlanSummary)> {
    let ReadyConversion { to, output, optimizer, config, casts, .. } = ready;
    let all: Vec<&Checkpoint> = std::iter::once(&output).chain(&optimizer).collect();
    let mut edits = CastRule::for_each(casts, &all)?.into_iter();
    let mut edited = |output: Checkpoint| match edits.next() {
        Some(casts) if !casts.is_empty() => Edit { casts, ..Edit::default() }.apply(&output),
        _ => Ok(output),
    };
    let shards = match to.is_cerebras() {
        true => Shards::One,
        false => Shards::Numbered(shard_size(options.shard_size.as_deref().unwrap_or(SHARD))?),
    };
    let target = statelens_formats::writing(&options.to)?.target(&Versions::default())?;
    let plan =
        plan_edited(Arc::new(edited(output)?), &[], &target.sharded(shards)?, &options.name)?;
    let mut planned = plan::worker::summary::describe(open, &plan, options, job)?;
    let mut more = Vec::new();
    if let Some(optimizer) = optimizer {
        let torch = statelens_formats::writing("torch")?.target(&Versions::default())?;
        let plan = plan_edited(Arc::new(edited(optimizer)?), &[], &torch, OPTIMIZER_FILE)?;
        planned.add(plan::worker::summary::describe(open, &plan, options, job)?);
        more.push(plan);
    }
    planned.command = command(open, options, to, found);
    let texts = config.map(|config| (config.name, config.text));
    Ok((PlannedOutput { plan, more, texts: texts.into_iter().collect() }, planned))
}

/// Returns the new config, with the text and name that the command gives it.
fn new_config(converted: &Converted, to: Implementation, inputs: &ConversionInputs) -> NamedText {
    let text = match converted.language {
        Language::Json => converted.config.to_json(),
        Language::Yaml => converted.config.to_yaml(),
    };
    let old = inputs.config.as_ref().map_or("config", |config| stem(&config.name));
    let name = match to.is_hf() {
        true => CONFIG.to_owned(),
        false => format!("{old}_to_{to}.{}", converted.language.extension()),
    };
    NamedText { name, text }
}

/// Returns the number of keys of the source model.
fn before(source: &Checkpoint, step: RouteStep) -> u64 {
    let leaves = source.leaves();
    match step.from.is_hf() {
        true => leaves.len() as u64,
        false => {
            leaves.iter().filter(|leaf| leaf.flat.to_lossy().starts_with("model.")).count() as u64
        }
    }
}

/// Lists the states of a Cerebras checkpoint that Hugging Face's files do not hold.
fn left_out(source: &Checkpoint, step: RouteStep, with_optimizer: bool) -> Option<String> {
    let Value::Dict(root) = source.value(source.root()) else { return None };
    if step.from.is_hf() || !step.to.is_hf() {
        return None;
    }
    let states = root.entries.iter().map(|(key, _)| key.to_string());
    let kept = |name: &String| name == "model" || with_optimizer && name == "optimizer";
    let others: Vec<String> = states.filter(|name| !kept(name)).collect();
    (!others.is_empty()).then(|| {
        format!("Hugging Face\u{2019}s files hold only the model; left out: {}", others.join(", "))
    })
}

/// Returns the equivalent command.
fn command(
    open: &OpenCheckpoint,
    options: &ConvertOptions,
    to: Implementation,
    found: &ConversionInputs,
) -> String {
    let request: &FamilyRequest = &options.family;
    let mut words = vec!["convert-model".into(), open.source_name()];
    let mut add = |flag: &str, value: &str| words.extend([flag.to_owned(), value.to_owned()]);
    add("--to", &to.to_string());
    let families = Families::known()
        .is_ok_and(|families| families.models().any(|own| request.model.as_deref() == Some(own)));
    if let Some(model) = request.model.as_deref().filter(|_| families) {
        add("--model", model);
    }
    if let Some(source) = &request.source {
        add("--src-fmt", source);
    }
    if let (Some(config), Some(_)) = (&found.config, &request.config) {
        add("--config", &config.name);
    }
    if let Some(rules) = &request.recipe {
        add("--recipe", &rules.name);
    }
    options.casts.iter().chain(&options.cast).for_each(|cast| add("--cast", cast));
    if !to.is_cerebras()
        && let Some(size) = &options.shard_size
    {
        add("--hf-shard-size", size);
    }
    for (flag, on) in [
        ("--export-safetensors", options.to == "safetensors"),
        ("--drop-unmatched-keys", request.drop_unmatched),
        ("--unwrap", request.unwrap),
        ("--with-optimizer", request.with_optimizer && found.recognised.optimizer),
    ] {
        words.extend(on.then(|| flag.to_owned()));
    }
    let command = command_line(&words);
    match request.fold && !found.recognised.adapter.is_empty() {
        true => format!("{} && {command}", fold_command(open, found)),
        false => command,
    }
}
