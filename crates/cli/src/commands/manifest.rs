//! `statelens manifest`.

use std::io::{BufWriter, Write as _};
use std::path::Path;

use statelens::parallel;
use statelens_checkpoint::{Checkpoint, Error, Result};
use statelens_describe::{ManifestWriter, Unread};

use crate::args::Manifest;
use crate::output::{Folders, Output, check_target, keep_all, stop_signal};
use crate::print::{CommandResult, Failure, Printer, complain, grouped};
use crate::progress::{Bar, Unit};
use crate::source::FileSource;
use crate::{limits, remote};

pub(crate) fn run(args: &Manifest) -> CommandResult {
    let (checkpoint, sources) = super::open(&args.input.file, &args.input.common.with)?;
    limits::check(&checkpoint, "hashing all values")?;
    if let Some(output) = &args.output {
        return Ok(report_unread(&write(args, &checkpoint, &sources, output)?));
    }
    let mut printer = Printer::new();
    let mut stopped = None;
    let mut print = |text: &str| {
        printer.text(text).map_err(|failure| {
            stopped = Some(failure);
            Error::cancelled()
        })
    };
    let written = manifest(args, &checkpoint, args.input.common.json, &mut print);
    let unread = match (written, stopped) {
        (_, Some(failure)) => return Err(failure),
        (Err(error), None) => return Err(Failure::Error(error)),
        (Ok(unread), None) => unread,
    };
    printer.finish()?;
    // The checkpoint is never freed: dropping a hundred thousand values takes as long as listing
    // them.
    std::mem::forget(checkpoint);
    Ok(report_unread(&unread))
}

/// Reports the keys that could not be read; returns whether all were read.
fn report_unread(unread: &[Unread]) -> bool {
    for Unread { key, why } in unread.iter().take(SHOWN) {
        complain(&format!("`{key}` can't be read: {why}"));
    }
    if unread.len() > SHOWN {
        complain(&format!("{} more keys can't be read", grouped((unread.len() - SHOWN) as u64)));
    }
    unread.is_empty()
}

/// Unreadable keys that are reported one by one.
const SHOWN: usize = 20;

fn manifest(
    args: &Manifest,
    checkpoint: &Checkpoint,
    json: bool,
    out: &mut dyn FnMut(&str) -> Result<()>,
) -> Result<Vec<Unread>> {
    let leaves = checkpoint.leaves();
    let mut bar = Bar::new("hashing", Unit::Bytes).stopped_by(stop_signal()?);
    let mut writer = match json {
        true => ManifestWriter::json(checkpoint, &leaves, out),
        false => ManifestWriter::lines(checkpoint, &leaves, out),
    };
    parallel::drive(&mut writer, remote::workers(&[&args.input.file]), &mut bar)?;
    writer.finish()
}

/// Writes the manifest to a file, which gets its name when it is complete.
fn write(
    args: &Manifest,
    checkpoint: &Checkpoint,
    sources: &[std::sync::Arc<FileSource>],
    target: &Path,
) -> Result<Vec<Unread>> {
    check_target(target, args.force, sources)?;
    let mut folders = Folders::make(target.parent())?;
    let output = Output::create(target, args.force, 0)?;
    let failed = |error: std::io::Error| {
        Error::io(format!("writing failed: {error}")).in_file(target.display().to_string())
    };
    let named = target.extension().is_some_and(|end| end.eq_ignore_ascii_case("json"));
    let mut file = BufWriter::new(&*output.file);
    let unread = manifest(args, checkpoint, args.input.common.json || named, &mut |text| {
        file.write_all(text.as_bytes()).map_err(failed)
    })?;
    file.flush().map_err(failed)?;
    drop(file);
    keep_all(vec![output], args.durable.sync())?;
    folders.keep();
    Ok(unread)
}
