//! `statelens merge`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use statelens::PathText as _;
use statelens::parts::checkpoint::Checkpoint;
use statelens::parts::convert::Merging;
use statelens::{Error, Result};

use crate::args::{Edits, Merge};
use crate::commands::convert::{ConvertJob, Destination};
use crate::limits::limits;
use crate::print::{CommandResult, counted, keys_text, warn};
use crate::progress::{Bar, Unit};
use crate::source::{self, FileSource};
use crate::{remote, scratch};

pub(crate) fn run(args: &Merge) -> CommandResult {
    let (files, output) = files(args)?;
    let first = files.first().cloned().unwrap_or_default();
    let (destination, writing) =
        Destination::of(&first, Some(output), &Edits::default(), &args.writes)?;
    let (checkpoint, sources) = merged(&files, args)?;
    ConvertJob::new(destination, writing, &args.writes, &args.common).run(checkpoint, &sources)
}

/// Returns the inputs and the output: the last file unless `-o` names another.
fn files(args: &Merge) -> Result<(Vec<PathBuf>, PathBuf)> {
    let mut files = args.files.clone();
    let output = args.output.clone().or_else(|| files.pop());
    match output {
        Some(output) if files.len() >= 2 => Ok((files, output)),
        _ => Err(Error::refused("merging takes two or more checkpoints")
            .expected("two or more inputs, then the output")),
    }
}

/// Merges the inputs into one checkpoint with a single set of files.
fn merged(files: &[PathBuf], args: &Merge) -> Result<(Checkpoint, Vec<Arc<FileSource>>)> {
    let mut merging = Merging::new(limits());
    let mut sources = Vec::new();
    for file in files {
        if remote::address(file).is_some() {
            return Err(Error::unsupported("merge reads local files only")
                .in_file(file.to_text())
                .advice("Download it first."));
        }
        let opened = source::open(file, &args.common.with)?;
        let mut bar = Bar::new("opening", Unit::Keys);
        merging.add(
            &name(file),
            opened.files.clone().with_scratch(scratch::on_disk()),
            &mut |files| statelens::parts::formats::open(files, limits(), &mut bar),
        )?;
        sources.extend(opened.sources());
    }
    let (checkpoint, collisions) = merging.finish()?;
    if collisions.is_empty() {
        return Ok((checkpoint, sources));
    }
    let keys: Vec<String> = collisions.iter().map(|one| one.key.clone()).collect();
    let text = format!(
        "{}: {}",
        match keys.len() {
            1 => "1 key is in several checkpoints".to_owned(),
            many => format!("{} are in several checkpoints", counted(many as u64, "key")),
        },
        keys_text(&keys)
    );
    if !args.writes.lossy {
        for one in collisions.iter().take(MAX_LISTED) {
            warn(&format!("`{}` is in {} and in {}", one.key, one.first, one.last));
        }
        return Err(Error::refused(text).advice(
            "Rename or leave them out with `statelens convert` first, or keep the last of each \
             with --lossy.",
        ));
    }
    warn(&format!("{text}; the last of each is kept"));
    Ok((checkpoint, sources))
}

/// Collisions that are listed with the files they occur in.
const MAX_LISTED: usize = 20;

fn name(file: &Path) -> String {
    file.to_text()
}
