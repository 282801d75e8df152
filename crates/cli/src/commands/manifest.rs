//! `statelens manifest`.

use std::io::{BufWriter, Write as _};
use std::path::Path;

use statelens_checkpoint::{Checkpoint, Error, Result};
use statelens_inspect::{write_manifest, write_manifest_lines};

use crate::args::Manifest;
use crate::output::{Output, check_target, keep_all, stop_signal};
use crate::print::{Failure, Outcome, Printer};
use crate::progress::{Bar, Unit};
use crate::source::FileSource;

pub(crate) fn run(args: &Manifest) -> Outcome {
    let (checkpoint, sources) = super::open(&args.input.file, &args.input.common.with)?;
    if let Some(output) = &args.output {
        write(args, &checkpoint, &sources, output)?;
        return Ok(true);
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
    match (written, stopped) {
        (_, Some(failure)) => return Err(failure),
        (Err(error), None) => return Err(Failure::Error(error)),
        (Ok(()), None) => {}
    }
    printer.finish()?;
    // Never freed: to take a hundred thousand values apart takes as long as to list them.
    std::mem::forget(checkpoint);
    Ok(true)
}

fn manifest(
    checkpoint: &Checkpoint,
    json: bool,
    out: &mut dyn FnMut(&str) -> Result<()>,
) -> Result<()> {
    let leaves = checkpoint.leaves();
    let mut bar = Bar::new("hashing", Unit::Bytes).stopped_by(stop_signal()?);
    match json {
        true => write_manifest(checkpoint, &leaves, &mut bar, out),
        false => write_manifest_lines(checkpoint, &leaves, &mut bar, out),
    }
}

/// Writes it to a file, which gets its name when it is complete.
fn write(
    args: &Manifest,
    checkpoint: &Checkpoint,
    sources: &[std::sync::Arc<FileSource>],
    target: &Path,
) -> Result<()> {
    check_target(target, args.force, sources)?;
    let output = Output::create(target, args.force, 0)?;
    let failed = |error: std::io::Error| {
        Error::io(format!("writing failed: {error}")).in_file(target.display().to_string())
    };
    let named = target.extension().is_some_and(|end| end.eq_ignore_ascii_case("json"));
    let mut file = BufWriter::new(&*output.file);
    manifest(checkpoint, args.input.common.json || named, &mut |text| {
        file.write_all(text.as_bytes()).map_err(failed)
    })?;
    file.flush().map_err(failed)?;
    drop(file);
    keep_all(vec![output], args.durable.sync())
}
