//! `statelens manifest`.

use std::path::Path;

use statelens::parts::describe::Unread;
use statelens::{Checkpoint, Error, ManifestForm, Result};

use crate::args::Manifest;
use crate::output::{check_target, write_file};
use crate::print::{CommandResult, Failure, Printer, grouped, warn};
use crate::progress::{Bar, Unit};

pub(crate) fn run(args: &Manifest) -> CommandResult {
    let checkpoint = super::open(&args.input.file, &args.input.common.with)?;
    let (checkpoint, known) = match args.dequantize {
        true => super::quantised::listed(checkpoint)?,
        false => (checkpoint, true),
    };
    if let Some(output) = &args.output {
        let unread = write(args, &checkpoint, output)?;
        return Ok(report_unread(&checkpoint, &unread) && known);
    }
    let mut printer = Printer::new();
    let mut stopped = None;
    let mut print = |text: &str| {
        printer.text(text).map_err(|failure| {
            stopped = Some(failure);
            Error::cancelled()
        })
    };
    let written = manifest(&checkpoint, args.input.common.json, &mut print);
    let unread = match (written, stopped) {
        (_, Some(failure)) => return Err(failure),
        (Err(error), None) => return Err(Failure::Error(error)),
        (Ok(unread), None) => unread,
    };
    printer.finish()?;
    let complete = report_unread(&checkpoint, &unread) && known;
    // The checkpoint is never freed: dropping a hundred thousand values takes as long as listing
    // them.
    std::mem::forget(checkpoint);
    Ok(complete)
}

/// Reports damage and unreadable keys. Returns true if nothing was reported.
fn report_unread(checkpoint: &Checkpoint, unread: &[Unread]) -> bool {
    let mut damage = checkpoint.damage().peekable();
    let is_whole = damage.peek().is_none();
    for finding in damage.take(SHOWN) {
        warn(&format!("damaged: {}. {}", finding.title, finding.detail));
    }
    for Unread { key, why } in unread.iter().take(SHOWN) {
        warn(&format!("`{key}` can't be read: {why}"));
    }
    if unread.len() > SHOWN {
        warn(&format!("{} more keys can't be read", grouped((unread.len() - SHOWN) as u64)));
    }
    is_whole && unread.is_empty()
}

/// Unreadable keys that are reported one by one.
const SHOWN: usize = 20;

fn manifest(
    checkpoint: &Checkpoint,
    json: bool,
    out: &mut dyn FnMut(&str) -> Result<()>,
) -> Result<Vec<Unread>> {
    let mut bar = Bar::stoppable("hashing", Unit::Bytes)?;
    let form = if json { ManifestForm::Json } else { ManifestForm::Lines };
    checkpoint.manifest(form, out, &mut bar)
}

/// Writes the manifest to a file, which gets its name when it is complete.
fn write(args: &Manifest, checkpoint: &Checkpoint, target: &Path) -> Result<Vec<Unread>> {
    checkpoint.check_size("hashing all values")?;
    check_target(target, args.replacing.force, checkpoint.sources())?;
    let named = target.extension().is_some_and(|end| end.eq_ignore_ascii_case("json"));
    write_file(target, args.replacing.force, args.replacing.sync(), |out| {
        let json = args.input.common.json || named;
        manifest(checkpoint, json, &mut |text| out(text.as_bytes()))
    })
}
