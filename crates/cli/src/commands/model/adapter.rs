//! `statelens fold-lora` of an adapter of PEFT.

use std::path::{Path, PathBuf};

use statelens_checkpoint::{Error, Result};
use statelens_convert::{Edit, shard_size};
use statelens_formats::Shards;
use statelens_inspect::visible;
use statelens_recipes::adapter::{CONFIG, FILES, fold};

use super::checkpoint::{beside, stem, together, weights};
use super::files;
use crate::args::{Edits, FoldLora, Writes};
use crate::commands::convert::{Destination, Job};
use crate::print::{Outcome, Printer, counted};
use crate::source;

/// The adapter that is meant, if one is.
pub(super) fn of(args: &FoldLora) -> Result<Option<PathBuf>> {
    let folder = match &args.adapter {
        Some(path) if !path.is_dir() => return Ok(Some(path.clone())),
        Some(path) => path.clone(),
        None if args.config.is_some() => return Ok(None),
        None if args.checkpoint.is_dir() => args.checkpoint.clone(),
        None => args.checkpoint.parent().map(Path::to_owned).unwrap_or_default(),
    };
    let found = FILES.iter().map(|name| folder.join(name)).find(|path| path.is_file());
    match (&found, &args.adapter) {
        (None, Some(_)) => Err(Error::refused("there is no adapter in this folder")
            .in_file(folder.display().to_string())
            .expected(FILES.join(" or "))),
        _ => Ok(found),
    }
}

pub(super) fn run(args: &FoldLora, adapter: &Path) -> Outcome {
    let config = adapter.with_file_name(CONFIG);
    if !config.is_file() {
        return Err(Error::refused(format!("there is no {CONFIG} beside the adapter"))
            .in_file(adapter.display().to_string())
            .advice("It says how the adapter is scaled: put the one that was saved with it there.")
            .into());
    }
    let config = files::read_config(&config, &[])?;
    let model = weights(&args.checkpoint);
    if model == adapter {
        return Err(Error::refused("this is the adapter itself")
            .in_file(model.display().to_string())
            .expected("the model that it was trained on, and --adapter")
            .into());
    }
    let name = format!("{}_folded", stem(&source::named(&model)?)?);
    let folder = args.output_dir.clone().unwrap_or_else(|| match args.checkpoint.is_dir() {
        true => args.checkpoint.clone(),
        false => args.checkpoint.parent().map(Path::to_owned).unwrap_or_default(),
    });
    let folder = folder.join(name);
    let configs = match beside(&args.checkpoint).filter(|path| path.ends_with("config.json")) {
        Some(path) => vec![(folder.join("config.json"), files::read_text(&path)?)],
        None => Vec::new(),
    };
    files::check(&configs, args.force)?;
    let parts = vec![("model".to_owned(), model), ("adapter".to_owned(), adapter.to_owned())];
    let (checkpoint, sources) = together(parts)?;
    let folded = fold(&checkpoint, &config)?;
    let writes = Writes::plain("safetensors", args.force, args.durable);
    let job = Job {
        destination: Destination::File(folder.join("model.safetensors")),
        writing: statelens_formats::writing("safetensors")?,
        edits: &Edits::default(),
        edit: Edit::default(),
        writes: &writes,
        common: &args.common,
        dry_run: false,
        scan: false,
        cut: Shards::BySize(shard_size(&args.hf_shard_size)?),
    };
    job.run(folded.checkpoint, &sources)?;
    files::write(&configs, args.force, &args.durable)?;
    if !args.common.json {
        let mut printer = Printer::new();
        printer.line(&format!("{} changed", counted(folded.weights.len() as u64, "tensor")))?;
        for (path, _) in &configs {
            printer.line(&format!("wrote {}", visible(&path.display().to_string())))?;
        }
        printer.finish()?;
    }
    Ok(true)
}
