//! `statelens fix-checkpoint-spec`.

use std::io::{self, BufRead as _, Write as _};
use std::path::Path;

use statelens::parts::checkpoint::visible;
use statelens::parts::formats::cerebras::fix::Fixed;
use statelens::parts::formats::cerebras::rewrite::{repair, with_suffix};
use statelens::parts::values::Json;
use statelens::{Error, Result};

use super::writing::{Replace, file_name, forced, write};
use crate::args::FixCheckpointSpec;
use crate::print::{CommandResult, Failure, Printer, grouped};

pub(crate) fn run(args: &FixCheckpointSpec) -> CommandResult {
    let (checkpoint, sources) = super::open(&args.file, &args.common.with)?.into_parts();
    let (target, replace) = match (&args.output, args.inplace) {
        (Some(output), _) => (output.clone(), forced(args.force)),
        (None, true) => (args.file.clone(), Replace::Source),
        (None, false) => (with_suffix(&args.file, "_fixed"), forced(args.force)),
    };
    let (fixed, plan) = repair(&checkpoint, args.upgrade, file_name(&target)?)
        .map_err(|error| error.in_file(args.file.display().to_string()))?;
    drop(checkpoint);
    let mut printer = Printer::new();
    let Some(plan) = plan else {
        report(args, &fixed, None, &mut printer)?;
        printer.finish()?;
        return Ok(true);
    };
    if replace == Replace::Source && !args.yes && !agreed(&args.file)? {
        return Err(Error::refused("nothing was changed")
            .in_file(args.file.display().to_string())
            .into());
    }
    let bytes = write(plan, &target, replace, &sources, false, args.durable.sync())?;
    report(args, &fixed, Some((&target, bytes)), &mut printer)?;
    printer.finish()?;
    Ok(true)
}

/// Asks on standard error whether to replace the checkpoint; no answer means no.
fn agreed(file: &Path) -> Result<bool> {
    let failed = |error: io::Error| Error::io(format!("the question could not be asked: {error}"));
    let question =
        format!("Replace {} with the repaired one? [y/N] ", visible(&file.display().to_string()));
    let mut err = io::stderr().lock();
    err.write_all(question.as_bytes()).and_then(|()| err.flush()).map_err(failed)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(failed)?;
    // At the end of input the cursor is still behind the question.
    if answer.is_empty() {
        err.write_all(b"\n").map_err(failed)?;
    }
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

fn report(
    args: &FixCheckpointSpec,
    fixed: &Fixed,
    written: Option<(&Path, u64)>,
    printer: &mut Printer,
) -> Result<(), Failure> {
    if args.common.json {
        let mut json = Json::new();
        json.object(|json| {
            json.name("statelens").number(1);
            json.name("repairs").array(|json| {
                fixed.repairs.iter().for_each(|repair| json.str(&repair.text()));
            });
            json.name("no_global_step").bool(fixed.no_global_step);
            json.name("output");
            match written {
                None => json.null(),
                Some((path, bytes)) => {
                    json.str(&path.to_string_lossy());
                    json.name("bytes").number(bytes);
                }
            }
        });
        return printer.line(json.as_str());
    }
    for repair in &fixed.repairs {
        printer.line(&format!("repaired  {}", visible(&repair.text())))?;
    }
    if fixed.no_global_step {
        printer.line("skipped   the last epochs: there is no global_step to set them to")?;
    }
    match written {
        None => printer.line("there is nothing to repair: nothing was written"),
        Some((path, bytes)) => printer.line(&format!(
            "wrote     {}, {} bytes",
            visible(&path.display().to_string()),
            grouped(bytes)
        )),
    }
}
