//! `statelens fold-lora`.

use std::path::{Path, PathBuf};

use statelens::parts::checkpoint::visible;
use statelens::parts::convert::Edit;
use statelens::parts::formats::Shards;
use statelens::{Error, Result};
use statelens_recipes::lora;

use super::siblings::sibling_config;
use super::{adapter, files};
use crate::args::{Edits, FoldLora, Writes};
use crate::commands;
use crate::commands::convert::{ConvertJob, Destination};
use crate::print::{CommandResult, Printer, complain, counted};

pub(crate) fn run(args: &FoldLora) -> CommandResult {
    if let Some(path) = adapter::of(args)? {
        return adapter::run(args, &path);
    }
    let config_path = args.config.clone().or_else(|| sibling_config(&args.checkpoint));
    let config_path = config_path.ok_or_else(|| {
        Error::refused("LoRA's scale is in the config, but the folder has no config")
            .in_file(args.checkpoint.display().to_string())
            .advice("Name it with --config.")
    })?;
    let config = files::read_config(&config_path, &[])?;
    let (checkpoint, sources) = commands::open(&args.checkpoint, &args.common.with)?.into_parts();
    let folded = lora::fold(&checkpoint, &config)?;
    for note in &folded.notes {
        complain(note);
    }
    let path = folded_name(&config_path, args.output_dir.as_deref(), "yaml")?;
    let configs = [(path, folded.config.to_narrow_yaml())];
    files::check(&configs, args.force)?;
    let writes = Writes::plain("cerebras", args.force, args.durable);
    let job = ConvertJob {
        destination: Destination::File(folded_name(
            &args.checkpoint,
            args.output_dir.as_deref(),
            "mdl",
        )?),
        writing: statelens::parts::formats::writing("cerebras")?,
        edits: &Edits::default(),
        edit: Edit::default(),
        writes: &writes,
        common: &args.common,
        dry_run: false,
        scan: false,
        cut: Shards::One,
    };
    job.run(folded.checkpoint, &sources)?;
    files::write(&configs, args.force, &args.durable)?;
    if !args.common.json {
        let mut printer = Printer::new();
        printer.line(&format!("{} folded", counted(folded.weights.len() as u64, "weight")))?;
        for (path, _) in &configs {
            printer.line(&format!("wrote {}", visible(&path.display().to_string())))?;
        }
        printer.finish()?;
    }
    Ok(true)
}

/// Returns `NAME_folded.EXTENSION` in `folder`, by default that of the input.
fn folded_name(path: &Path, folder: Option<&Path>, extension: &str) -> Result<PathBuf> {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let stem = stem.ok_or_else(|| {
        Error::refused("this path has no file name").in_file(path.display().to_string())
    })?;
    let name = format!("{stem}_folded.{extension}");
    Ok(match folder {
        Some(folder) => folder.join(name),
        None => path.with_file_name(name),
    })
}
