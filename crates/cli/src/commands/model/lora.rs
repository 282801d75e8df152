//! `statelens fold-lora`.

use std::path::{Path, PathBuf};

use statelens::Result;
use statelens_recipes::lora;

use super::siblings::{name_text, sibling_config};
use super::{adapter, files, folding};
use crate::args::{FoldLora, Writes};
use crate::commands;
use crate::commands::convert::ConvertJob;
use crate::print::{CommandResult, counted, warn};

pub(crate) fn run(args: &FoldLora) -> CommandResult {
    if let Some(path) = adapter::of(args)? {
        return adapter::run(args, &path);
    }
    let (checkpoint, sources) = commands::open(&args.checkpoint, &args.common.with)?.into_parts();
    let config_path = args.config.clone().or_else(|| sibling_config(&args.checkpoint));
    let config_path = config_path.ok_or_else(|| folding::no_config(&args.checkpoint))?;
    let config = files::read_config(&config_path, &[])?;
    let folded = lora::fold(&checkpoint, &config)?;
    for note in &folded.notes {
        warn(note);
    }
    let path = folded_name(&config_path, args.output_dir.as_deref(), "yaml")?;
    let configs = [(path, folded.config.to_narrow_yaml())];
    files::check(&configs, args.replacing.force)?;
    let writes = Writes::plain("cerebras", args.replacing);
    let output = folded_name(&args.checkpoint, args.output_dir.as_deref(), "mdl")?;
    ConvertJob::to_file(output, &writes, &args.common)?.run(folded.checkpoint, &sources)?;
    let line = format!("{} folded", counted(folded.weights.len() as u64, "weight"));
    files::write_and_list(&configs, args.replacing, Some(&line), args.common.json)?;
    Ok(true)
}

/// Returns `NAME_folded.EXTENSION` in `folder`, by default that of the input.
fn folded_name(path: &Path, folder: Option<&Path>, extension: &str) -> Result<PathBuf> {
    let name = format!("{}_folded.{extension}", name_text(path.file_stem(), path)?);
    Ok(match folder {
        Some(folder) => folder.join(name),
        None => path.with_file_name(name),
    })
}
