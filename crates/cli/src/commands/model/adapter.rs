//! `statelens fold-lora` for a PEFT adapter.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use statelens::PathText as _;
use statelens::parts::convert::shard_size;
use statelens::parts::formats::Shards;
use statelens::{Error, Result};
use statelens_recipes::adapter::{CONFIG, FILES, FoldedAdapter, fold};

use super::files;
use super::siblings::{combine, output_folder, sibling_config, stem, weights};
use crate::args::{FoldLora, Writes};
use crate::commands::convert::ConvertJob;
use crate::print::{CommandResult, counted};
use crate::source::{self, FileSource};

/// Returns the adapter to fold: the one of the arguments, or the one in the folder of the
/// checkpoint.
pub(super) fn of(args: &FoldLora) -> Result<Option<PathBuf>> {
    match &args.adapter {
        Some(path) if !path.is_dir() => Ok(Some(path.clone())),
        Some(path) => in_folder(path).map(Some).ok_or_else(|| {
            Error::refused("there is no adapter in this folder")
                .in_file(path.to_text())
                .expected(FILES.join(" or "))
        }),
        None if args.config.is_some() => Ok(None),
        None => Ok(sibling_adapter(&args.checkpoint)),
    }
}

/// Returns the adapter in the folder of a checkpoint.
pub(super) fn sibling_adapter(checkpoint: &Path) -> Option<PathBuf> {
    match checkpoint.is_dir() {
        true => in_folder(checkpoint),
        false => in_folder(checkpoint.parent()?),
    }
}

fn in_folder(folder: &Path) -> Option<PathBuf> {
    FILES.iter().map(|name| folder.join(name)).find(|path| path.is_file())
}

/// Returns whether an adapter has the names of Kohya's scripts.
fn is_kohya(adapter: &Path) -> Result<bool> {
    let opened = crate::commands::open(adapter, &[])?;
    let ends =
        |end: &str| opened.inner().each_leaf().any(|leaf| leaf.flat.to_lossy().ends_with(end));
    Ok(ends(".alpha") && ends(".lora_down.weight"))
}

/// Returns the model with the adapter folded into it, and the source files of both.
pub(super) fn folded(
    checkpoint: &Path,
    adapter: &Path,
) -> Result<(FoldedAdapter, Vec<Arc<FileSource>>)> {
    let config = adapter.with_file_name(CONFIG);
    if !config.is_file() && is_kohya(adapter)? {
        return Err(Error::unsupported(
            "this adapter has the layout of Kohya's scripts, with its scale in `.alpha` tensors",
        )
        .in_file(adapter.to_text())
        .advice("Statelens folds adapters of PEFT. Convert it with diffusers or PEFT first."));
    }
    if !config.is_file() {
        return Err(Error::refused(format!("there is no {CONFIG} next to the adapter"))
            .in_file(adapter.to_text())
            .advice(
                "It holds the scale of the adapter. Put the one that was saved with the adapter \
                 there.",
            ));
    }
    let config = files::read_config(&config, &[])?;
    let model = weights(checkpoint);
    if model == adapter {
        return Err(Error::refused("this is the adapter itself")
            .in_file(model.to_text())
            .expected("the model that it was trained on, and --adapter"));
    }
    let parts = vec![("model".to_owned(), model), ("adapter".to_owned(), adapter.to_owned())];
    let (joined, sources) = combine(parts)?;
    Ok((fold(&joined, &config)?, sources))
}

pub(super) fn run(args: &FoldLora, adapter: &Path) -> CommandResult {
    let (folded, sources) = folded(&args.checkpoint, adapter)?;
    let model = weights(&args.checkpoint);
    let name = format!("{}_folded", stem(&source::named(&model)?)?);
    let folder = output_folder(args.output_dir.as_deref(), &args.checkpoint).join(name);
    let configs =
        match sibling_config(&args.checkpoint).filter(|path| path.ends_with("config.json")) {
            Some(path) => vec![(folder.join("config.json"), files::read_text(&path)?)],
            None => Vec::new(),
        };
    files::check(&configs, args.replacing.force)?;
    let writes = Writes::plain("safetensors", args.replacing);
    let job = ConvertJob {
        cut: Shards::BySize(shard_size(&args.hf_shard_size)?),
        ..ConvertJob::to_file(folder.join("model.safetensors"), &writes, &args.common)?
    };
    job.run(folded.checkpoint, &sources)?;
    let line = format!("{} changed", counted(folded.weights.len() as u64, "tensor"));
    files::write_and_list(&configs, args.replacing, Some(&line), args.common.json)?;
    Ok(true)
}
