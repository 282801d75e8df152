//! Recognises the model of a checkpoint: from its keys, from its metadata, and from the config
//! given or next to it.

use std::sync::Arc;

use statelens_checkpoint::{Checkpoint, Error, FileSet, Result, advice};
use statelens_describe::model::{Config, Fact, Model};
use statelens_recipes::config::{Families, Guess, Language, Value, parse};
use statelens_recipes::conversion::{RouteStep, route};
use statelens_recipes::inference::{self, ModelInputs};
use statelens_recipes::language::Recipe;
use statelens_recipes::{Implementation, families, ranks, recognise};

use super::files::{self, MAX_CONFIG_SIZE, SourceModel};
use super::library;
use crate::family::message::{FamilyRequest, FormatChoice, NamedText, RecognisedModel};
use crate::state::fmt::plural;
use crate::text;
use crate::worker::opened::OpenCheckpoint;

/// Everything that a conversion needs.
pub(crate) struct ConversionInputs {
    /// The reply to the page.
    pub(crate) recognised: RecognisedModel,
    /// The checkpoint to convert.
    pub(super) checkpoint: Arc<Checkpoint>,
    /// Why the requested files can't be joined into one checkpoint.
    pub(super) load_error: Option<Error>,
    /// Whether it was split into a file per rank.
    pub(super) ranked: bool,
    pub(super) config: Option<NamedText>,
    /// The parsed config.
    pub(super) value: Option<Value>,
    pub(super) source: Option<Implementation>,
    /// The rules, parsed and as text.
    pub(super) recipe: Result<Recipe>,
    pub(super) rules: NamedText,
}

pub(crate) fn recognise_model(
    open: &OpenCheckpoint,
    request: &FamilyRequest,
    failed: &[String],
) -> ConversionInputs {
    let ranked = library::ranked(&open.checkpoint.files);
    let (model, load_error) = match SourceModel::of(open, request) {
        Ok(model) => (model, None),
        Err(error) => {
            (SourceModel { checkpoint: open.checkpoint.clone(), of_trainer: false }, Some(error))
        }
    };
    let of_trainer = model.of_trainer
        || request.source.is_none()
            && recognise::is_training_state(&model.checkpoint, request.unwrap);
    let checkpoint = &*model.checkpoint;
    let listed = library::catalog().models().map(str::to_owned);
    // The twins of models, for a part of them.
    let is_twin = |name: &String| {
        name.ends_with("-headless") && request.model.as_deref() != Some(name.as_str())
    };
    let models = listed.filter(|name| !is_twin(name)).collect();
    let mut recognised = RecognisedModel { models, ..RecognisedModel::default() };
    let folder = ranked.as_ref().map(|ranked| ranked.folder.trim_end_matches('/'));
    let config = request.config.clone().or_else(|| sibling_config(&checkpoint.files, folder));
    let (value, wrong) = match config.as_ref().map(read).transpose() {
        Ok(value) => (value, None),
        Err(error) => (None, Some(error)),
    };
    recognised.config = config.as_ref().map(|config| config.name.clone()).unwrap_or_default();
    recognised.mismatch = match (&config, &value) {
        (Some(config), Some(value)) => mismatch(open, config, value),
        _ => String::new(),
    };
    let known = Families::known();
    let guesses = match (&value, &known) {
        (Some(value), Ok(known)) => known.recognise(value),
        _ => Vec::new(),
    };
    let cerebras = !of_trainer && recognise::is_cerebras(checkpoint);
    let adapter = files::adapter(&open.checkpoint.files).filter(|_| ranked.is_none());
    let adapter = adapter.map(|id| open.checkpoint.files.name(id).to_owned());
    recognised.adapter = adapter.filter(|_| !cerebras).unwrap_or_default();
    recognised.optimizer = ranked.is_none()
        && !request.fold
        && match cerebras {
            true => recognise::has_optimizer(checkpoint),
            false => files::optimizer(&checkpoint.files).is_some(),
        };
    let inputs = ModelInputs {
        checkpoint,
        config: value.as_ref(),
        guesses: &guesses,
        unwrap: request.unwrap,
        of_trainer,
        parts: &[],
    };
    let towards = if cerebras { Implementation::HuggingFace } else { Implementation::CURRENT };
    let target = request.target.as_deref().and_then(|name| name.parse().ok()).unwrap_or(towards);
    let source = match (&ranked, &request.source) {
        (Some(ranked), None) => Ok(ranked.format),
        _ => inputs.source(request.source.as_deref(), target),
    };
    let named = match (&source, &request.model, &request.recipe) {
        (_, Some(model), _) => Ok(model.clone()),
        (_, None, Some(rules)) => families::parse(&rules.name, &rules.text).map(|own| own.family),
        (Ok(source), None, None) => match (not_fetched(failed), &ranked) {
            // Without the missing file, another family that covers most of the keys could be
            // recognised by mistake.
            (Some(error), _) => Err(error),
            (None, Some(ranked)) => Ok(ranked.family.to_owned()),
            (None, None) => inputs.model(*source, towards_of(*source)),
        },
        (Err(error), None, None) => Err(error.clone()),
    };
    let (rules, recipe) = match (&request.recipe, &named) {
        (Some(rules), _) => (rules.clone(), families::parse(&rules.name, &rules.text)),
        (None, Ok(model)) => own(model),
        (None, Err(error)) => (NamedText::default(), Err(error.clone())),
    };
    recognised.model = named.as_ref().cloned().unwrap_or_default();
    recognised.title = match &recipe {
        Ok(recipe) if !recipe.title.is_empty() => recipe.title.clone(),
        _ => recognised.model.clone(),
    };
    (recognised.certain, recognised.by) = match &ranked {
        Some(ranked) if recognised.model == ranked.family => (true, vec!["file names".to_owned()]),
        _ => clues_of(checkpoint, request, &recognised, &guesses, cerebras),
    };
    recognised.source = source.as_ref().map(Implementation::to_string).unwrap_or_default();
    let own = ranked.as_ref().map(|ranked| ranked.format);
    let layouts: Vec<Implementation> = recipe.as_ref().map(inference::layouts).unwrap_or_default();
    recognised.sources = formats().chain(own).chain(layouts.iter().copied()).map(choice).collect();
    if let (Ok(recipe), Ok(source), Ok(known)) = (&recipe, &source, &known) {
        let leads =
            |target: &Implementation| leads(recipe, known, &recognised.model, *source, *target);
        recognised.targets = formats().chain(layouts).filter(leads).map(choice).collect();
    }
    let is_known = |unwrap| !recognise::by_keys(checkpoint, !cerebras, unwrap).is_empty();
    recognised.wrapped = recognised.model.is_empty()
        && request.recipe.is_none()
        && !is_known(false)
        && is_known(true);
    if recognised.model.is_empty() && request.recipe.is_none() {
        recognised.fitting = fitting(checkpoint, !cerebras, request.unwrap);
    }
    let unknown = not_fetched(failed)
        .or(load_error.clone().filter(|_| !request.fold))
        .or(wrong)
        .or_else(|| source.as_ref().err().cloned());
    let of_ranks =
        recipe.as_ref().ok().filter(|_| recognised.targets.is_empty()).and_then(of_ranks);
    let unknown = unknown.or(of_ranks);
    let unknown = unknown.or_else(|| named.err().filter(|_| request.recipe.is_none()));
    recognised.unknown = unknown.as_ref().map(text::error);
    let ranked = ranked.is_some();
    let SourceModel { checkpoint, .. } = model;
    ConversionInputs {
        recognised,
        checkpoint,
        load_error,
        ranked,
        config,
        value,
        source: source.ok(),
        recipe,
        rules,
    }
}

/// Returns the families that know most of the keys, if there are several.
fn fitting(checkpoint: &Checkpoint, hf: bool, unwrap: bool) -> Vec<String> {
    let guesses = recognise::by_keys(checkpoint, hf, unwrap);
    let most = guesses.iter().map(|guess| guess.known).max().unwrap_or(0);
    let best = guesses.into_iter().filter(|guess| guess.known == most).map(|guess| guess.family);
    let best: Vec<String> = best.filter(|family| !family.ends_with("-headless")).collect();
    if (2..=MAX_FITTING).contains(&best.len()) { best } else { Vec::new() }
}

/// The maximum number of families that are offered as buttons.
const MAX_FITTING: usize = 8;

/// Facts in a config that keys and shapes contradict only if it belongs to another model.
const DISTINCTIVE: [&str; 5] =
    ["layers", "hidden_size", "intermediate_size", "vocabulary", "experts"];

/// Describes how a config contradicts keys and shapes; empty if it does not.
fn mismatch(open: &OpenCheckpoint, config: &NamedText, value: &Value) -> String {
    let config_facts = Config::new(config.name.clone(), value.scalars());
    let model = Model::of(&open.checkpoint, &open.leaves, Some(&config_facts));
    let doubted = |fact: &&Fact| DISTINCTIVE.contains(&&*fact.name) && !fact.doubt.is_empty();
    let line = |fact: &Fact| {
        let counted = fact.doubt.split(':').next().unwrap_or_default();
        format!("{} {}, but {counted}", fact.label, fact.text())
    };
    let lines: Vec<String> = model.facts.iter().filter(doubted).map(line).collect();
    if lines.is_empty() {
        return String::new();
    }
    format!("`{}` belongs to another model: it says {}.", config.name, lines.join("; "))
}

/// Returns the default target for a source format.
fn towards_of(source: Implementation) -> Implementation {
    if source.is_hf() { Implementation::CURRENT } else { Implementation::HuggingFace }
}

/// Returns the rules for a model that come with Statelens.
fn own(model: &str) -> (NamedText, Result<Recipe>) {
    let recipe = families::find(model);
    let rules = recipe.as_ref().ok().and_then(|recipe| {
        let name = format!("{}.recipe", recipe.family);
        Some(NamedText { name, text: families::text(&recipe.family)?.to_owned() })
    });
    (rules.unwrap_or_default(), recipe)
}

/// Returns the evidence for the model, and whether it is certain.
fn clues_of(
    checkpoint: &Checkpoint,
    request: &FamilyRequest,
    recognised: &RecognisedModel,
    guesses: &[Guess],
    cerebras: bool,
) -> (bool, Vec<String>) {
    if recognised.model.is_empty() {
        return (false, Vec::new());
    }
    if let Some(rules) = &request.recipe {
        return (true, vec![rules.name.clone()]);
    }
    if request.model.is_some() {
        return (true, vec!["set by you".to_owned()]);
    }
    let mut by = Vec::new();
    let family = families::find(&recognised.model).map(|recipe| recipe.family).unwrap_or_default();
    let by_keys = recognise::by_keys(checkpoint, !cerebras, request.unwrap);
    let own = by_keys.iter().find(|guess| guess.family == family);
    let all = own.is_some_and(|own| own.known == own.keys);
    let alone =
        own.is_some_and(|own| by_keys.iter().filter(|other| other.known >= own.known).count() == 1);
    if let Some(own) = own {
        by.push(match all {
            true => "keys".to_owned(),
            false => format!("{} of {}", own.known, plural(own.keys as u64, "key")),
        });
    }
    let by_config = guesses.iter().any(|guess| guess.model == recognised.model);
    if by_config {
        by.push(recognised.config.clone());
    }
    if recognise::release(checkpoint).is_some() {
        by.push("__metadata__".to_owned());
    }
    (all && (by_config || alone), by)
}

/// Returns whether the recipe and the configs cover a conversion between two formats.
fn leads(
    recipe: &Recipe,
    known: &Families,
    model: &str,
    from: Implementation,
    to: Implementation,
) -> bool {
    let is_known = known.models().any(|own| own == model);
    from != to
        && route(recipe, from, to).is_ok()
        && (!is_known || known.plan(model, from, to).is_ok())
}

/// Returns Hugging Face's format and the Cerebras releases, the newest first.
fn formats() -> impl Iterator<Item = Implementation> {
    let releases = Implementation::RELEASES.iter().rev();
    let releases = releases.map(|(major, minor)| Implementation::cerebras(*major, *minor));
    std::iter::once(Implementation::HuggingFace).chain(releases)
}

fn choice(format: Implementation) -> FormatChoice {
    FormatChoice { id: format.to_string(), name: name_of(format) }
}

/// Returns the display name of a format.
pub(super) fn name_of(format: Implementation) -> String {
    match format.version() {
        None if format.is_hf() => "Hugging Face".to_owned(),
        None => format.to_string(),
        Some((major, minor)) => format!("Cerebras {major}.{minor}"),
    }
}

/// Returns an error if files of families could not be fetched.
fn not_fetched(failed: &[String]) -> Option<Error> {
    let first = failed.first()?;
    Some(
        Error::io(format!("the page could not fetch {first}, which describes a model family"))
            .advice("Try again when you are online, or copy the whole site."),
    )
}

/// Returns an error if the recipe leads to a file per rank, which a page can't write.
fn of_ranks(recipe: &Recipe) -> Option<Error> {
    let (block, _) = ranks::of(recipe).next()?;
    let format = block.left.iter().chain(&block.right).find(|format| !format.is_hf())?;
    let error = Error::unsupported("a page can\u{2019}t write a file for each rank");
    let command = format!("statelens convert-model CKPT --to {format} --ranks N");
    Some(error.advice(advice!["The command can"].command(command)))
}

/// Finds the config next to the checkpoint or in a folder: `config.json`, `params.yaml`,
/// `params.json`, or the only YAML file.
fn sibling_config(files: &FileSet, folder: Option<&str>) -> Option<NamedText> {
    let main = files.name(files.main().ok()?);
    let own = main.rsplit_once('/').map_or("", |(folder, _)| folder);
    let folder = folder.unwrap_or(own);
    let there = files.iter().filter_map(|(id, file)| {
        let (own, name) = file.name.rsplit_once('/').unwrap_or(("", &file.name));
        (own == folder).then_some((id, name))
    });
    let there: Vec<_> = there.collect();
    let known = ["config.json", "params.yaml", "params.json"].iter();
    let mut known =
        known.filter_map(|wanted| there.iter().find(|(_, name)| name == wanted).copied());
    let mut yaml =
        there.iter().copied().filter(|(_, name)| Language::of_name(name) == Some(Language::Yaml));
    let only = match (yaml.next(), yaml.next()) {
        (Some(only), None) => Some(only),
        _ => None,
    };
    let (id, name) = known.next().or(only)?;
    let bytes = files.read_vec(id, 0, files.len(id).min(MAX_CONFIG_SIZE)).ok()?;
    Some(NamedText { name: name.to_owned(), text: String::from_utf8(bytes).ok()? })
}

/// As [`sibling_config`], for a model that is not split by rank.
pub(crate) fn config_of_files(files: &FileSet) -> Option<NamedText> {
    sibling_config(files, None)
}

/// Returns the values of the model's config among the files, if there is one that can be read.
pub(crate) fn config_values(files: &FileSet) -> Option<Config> {
    let config = config_of_files(files)?;
    let value = read(&config).ok()?;
    Some(Config::new(config.name, value.scalars()))
}

/// Returns the usual name of a model's config.
pub(crate) fn config_name(checkpoint: &Checkpoint) -> &'static str {
    match recognise::is_cerebras(checkpoint) {
        true => "params.yaml",
        false => "config.json",
    }
}

/// Parses a config.
pub(crate) fn read(config: &NamedText) -> Result<Value> {
    let language = Language::of_name(&config.name).unwrap_or(Language::Yaml);
    parse(&config.text, language).map_err(|error: Error| error.in_file(config.name.clone()))
}

impl ConversionInputs {
    /// Returns the source and target format.
    pub(super) fn step(&self, target: &str) -> Result<RouteStep> {
        let from = self.source.ok_or_else(|| {
            Error::refused("the release of the checkpoint could not be recognised")
                .advice("Choose it under \u{201c}From\u{201d}.")
        })?;
        Ok(RouteStep { from, to: target.parse()? })
    }
}
