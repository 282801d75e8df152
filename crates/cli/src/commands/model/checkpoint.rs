//! `statelens convert-model`.

use std::path::Path;
use std::sync::Arc;

use statelens::PathText as _;
use statelens::parts::checkpoint::{Checkpoint, visible};
use statelens::parts::convert::CastRule;
use statelens::parts::formats::cerebras::dataloader::{DataState, Loader};
use statelens::{Error, Result};
use statelens_recipes::config::Value;
use statelens_recipes::conversion::{ModelOptions, RouteStep, convert, refuse_unmatched};
use statelens_recipes::engine::Unmatched;
use statelens_recipes::{Implementation, inference};

use super::parts::CheckpointOutputs;
use super::requested::RequestedConversion;
use super::source::ModelSource;
use super::{files, folding, preview};
use crate::args::ConvertModel;
use crate::commands::toolbox::dataloader;
use crate::print::{CommandResult, Printer, warn};

pub(crate) fn run(args: &ConvertModel) -> CommandResult {
    let target: Implementation = args.tgt_fmt.parse()?;
    let casts = CastRule::all(&args.cast)?;
    let mut source = ModelSource::open(args)?;
    if args.fold_lora {
        let config = source.config.as_ref();
        let folded = folding::fold(&args.checkpoint, &source.checkpoint, config)?;
        source.checkpoint = Arc::new(folded.checkpoint);
        source.sources = folded.sources.map_or(source.sources, Into::into);
        source.config = folded.config.or(source.config);
    }
    let requested = RequestedConversion::of(args, &source, target)?;
    let step = RouteStep { from: requested.source, to: requested.target };
    let (stages, converted) =
        inference::stages(&requested.recipe, &requested.model, step, source.config.as_ref())?;
    let params = converted.as_ref().map(|converted| converted.config.clone());
    let params = params.or(source.config.clone()).unwrap_or(Value::Null);
    let options = ModelOptions {
        // Unmatched keys are reported below, one per line.
        drop_unmatched: true,
        unwrap: args.unwrap,
        with_optimizer: args.with_optimizer,
        ranks: u64::from(args.ranks),
    };
    let mut done = convert(&source.checkpoint, &requested.recipe, &stages, &params, options)?;
    check_unmatched(args, &done.unmatched)?;
    let converts_config = converted.is_some();
    let mut notes = Vec::new();
    let configs = match converted {
        Some(mut converted) => {
            if !casts.is_empty() {
                notes.extend(converted.cast(CastRule::of_all(&casts)));
            }
            requested.configs(args, &source, converted)?
        }
        None => Vec::new(),
    };
    let mut made = std::mem::take(&mut done.parts);
    if requested.source.is_cerebras() && target.is_cerebras() && !args.preview.dry_run {
        put_data_state(&mut made, source.config.as_ref())?;
    }
    let parts = CheckpointOutputs::new(args, &requested, made, casts)?;
    notes.iter().for_each(|note| warn(note));
    if args.preview.dry_run {
        return preview::show(args, &requested, &done, &parts);
    }
    for one in &done.unmatched {
        warn(&format!("left out: {one}"));
    }
    // Check that every file can be written before writing the first.
    files::check(&configs, args.replacing.force)?;
    parts.check()?;
    if !args.common.json {
        let mut printer = Printer::new();
        printer.line(&format!(
            "{} from {} to {}",
            requested.recipe.family, requested.source, target
        ))?;
        for key in done.random() {
            let key = visible(key);
            printer
                .line(&format!("`{key}` is not in the source: initialised with random numbers"))?;
        }
        printer.finish()?;
    }
    parts.write(&source.sources)?;
    let line = (!converts_config && source.config.is_some())
        .then_some("the config is not converted between these formats");
    files::write_and_list(&configs, args.replacing, line, args.common.json)?;
    Ok(true)
}

/// Reports the keys that no rule covers and refuses them, unless they are to be dropped.
fn check_unmatched(args: &ConvertModel, unmatched: &[Unmatched]) -> Result<()> {
    if args.drop_unmatched_keys || unmatched.is_empty() {
        return Ok(());
    }
    unmatched.iter().for_each(|one| warn(&format!("no rule covers {one}")));
    Err(refuse_unmatched(unmatched).in_file(args.checkpoint.to_text()))
}

/// Adds the state of the dataloader to checkpoints without one, if the config says that it is in
/// files.
fn put_data_state(made: &mut [(Option<String>, Checkpoint)], config: Option<&Value>) -> Result<()> {
    let Some((state, loader)) = data_state(config)? else { return Ok(()) };
    for (_, checkpoint) in made {
        let (with, replaces) = state.put_into(checkpoint, &loader)?;
        match replaces {
            true => warn("the checkpoint has a state `dataloader`, which is kept"),
            false => *checkpoint = with,
        }
    }
    Ok(())
}

/// Returns the state of the dataloader that release 1.9 kept in text files, if the config names
/// them.
fn data_state(config: Option<&Value>) -> Result<Option<(DataState, Loader)>> {
    let section = |name: &str| config?.as_map()?.get(name)?.as_map();
    let folder = section("cerebras").and_then(|map| map.get("save_iter_state_path"));
    let Some(folder) = folder.and_then(Value::as_str) else { return Ok(None) };
    let processor = section("train_input").and_then(|map| map.get("data_processor"));
    let loader = match processor.and_then(Value::as_str) {
        Some("GptHDF5MapDataProcessor") => Loader::Map { seed: 0 },
        Some("GptHDF5DataProcessor") => Loader::Iterable,
        _ => {
            return Err(Error::refused(
                "the config names a dataloader state, but no dataloader that has one",
            )
            .expected("train_input.data_processor GptHDF5MapDataProcessor or GptHDF5DataProcessor")
            .advice(
                "Remove cerebras.save_iter_state_path from the config to convert without it.",
            ));
        }
    };
    Ok(Some((dataloader::read(Path::new(folder))?, loader)))
}
