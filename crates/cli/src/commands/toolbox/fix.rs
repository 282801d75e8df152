//! `statelens fix-checkpoint-spec`.

use std::io::{self, BufRead as _, Write as _};
use std::path::Path;

use statelens::PathText as _;
use statelens::parts::checkpoint::visible;
use statelens::parts::formats::cerebras::fix::Fixed;
use statelens::parts::formats::cerebras::rewrite::{repair, with_suffix};
use statelens::parts::values::fields;
use statelens::write::{Replace, file_name};
use statelens::{Error, Result};

use crate::args::FixCheckpointSpec;
use crate::commands::writing::{file_options, output_fields, write};
use crate::print::{CommandResult, Failure, Printer, grouped};

pub(crate) fn run(args: &FixCheckpointSpec) -> CommandResult {
    let (checkpoint, sources) = super::open(&args.file, &args.common.with)?.into_parts();
    let mut options = file_options(args.replacing, &sources, false);
    let target = match (&args.output, args.inplace) {
        (Some(output), _) => output.clone(),
        (None, true) => {
            options.replace = Replace::Source;
            args.file.clone()
        }
        (None, false) => with_suffix(&args.file, "_fixed"),
    };
    let (fixed, plan) = repair(&checkpoint, args.upgrade, &file_name(&target)?)
        .map_err(|error| error.in_file(args.file.to_text()))?;
    drop(checkpoint);
    let mut printer = Printer::new();
    let Some(plan) = plan else {
        report(args, &fixed, &target, None, &mut printer)?;
        return printer.success();
    };
    if options.replace == Replace::Source && !args.yes && !agreed(&args.file)? {
        return Err(Error::refused("nothing was changed").in_file(args.file.to_text()).into());
    }
    let bytes = write(plan, &target, &options)?;
    report(args, &fixed, &target, Some(bytes), &mut printer)?;
    printer.success()
}

/// Asks on standard error whether to replace the checkpoint; no answer means no.
fn agreed(file: &Path) -> Result<bool> {
    let failed = |error: io::Error| Error::io(format!("the question could not be asked: {error}"));
    let question = format!("Replace {} with the repaired one? [y/N] ", visible(&file.to_text()));
    let mut err = io::stderr().lock();
    err.write_all(question.as_bytes()).and_then(|()| err.flush()).map_err(failed)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(failed)?;
    // At the end of input the cursor is still after the question.
    if answer.is_empty() {
        err.write_all(b"\n").map_err(failed)?;
    }
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

fn report(
    args: &FixCheckpointSpec,
    fixed: &Fixed,
    target: &Path,
    bytes: Option<u64>,
    printer: &mut Printer,
) -> Result<(), Failure> {
    if args.common.json {
        return printer.report(&fields! {
            repairs: fixed.repairs.iter().map(|repair| repair.text()).collect::<Vec<_>>(),
            no_global_step: fixed.no_global_step,
            #[serde(flatten)]
            output: output_fields(target, bytes),
        });
    }
    for repair in &fixed.repairs {
        printer.line(&format!("repaired  {}", visible(&repair.text())))?;
    }
    if fixed.no_global_step {
        printer.line("skipped   the last epochs: there is no global_step to set them to")?;
    }
    match bytes {
        None => printer.line("there is nothing to repair: nothing was written"),
        Some(bytes) => printer.line(&format!(
            "wrote     {}, {} bytes",
            visible(&target.to_text()),
            grouped(bytes)
        )),
    }
}
