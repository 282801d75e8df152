//! `statelens job plan`.

use std::path::{Path, PathBuf};

use statelens::PathText as _;
use statelens::job::{EditTexts, Job, JobOptions, JobWork, Reading};
use statelens::parts::convert::CastRule;
use statelens::{Error, Result};

use crate::args::{JobConvert, Spending};
use crate::commands::convert::Destination;
use crate::commands::edits;
use crate::commands::losses::{REFUSAL, losses_text};
use crate::print::{CommandResult, Printer, counted, grouped, size_text};
use crate::progress::{Bar, Unit};

pub(super) fn convert(args: &JobConvert) -> CommandResult {
    let input = args.input.as_deref().unwrap_or(Path::new(""));
    let output = args.output.clone();
    let (destination, writing) = Destination::of(input, output, &args.edits, &args.writes)?;
    let Destination::File(destination) = destination else {
        return Err(Error::refused("a job writes a file, not standard output").into());
    };
    if input == Path::new("-") {
        return Err(Error::refused("a job can't read standard input").into());
    }
    let writes = &args.writes;
    let options = JobOptions {
        source: input.to_owned(),
        destination,
        output: writes.output(writing),
        edits: EditTexts {
            rename_list: args.edits.rename_map.as_deref().map(edits::list).transpose()?,
            ..edits::texts(&args.edits)
        },
        lossy: writes.lossy,
        replace: writes.replacing.force,
        reading: reading(&args.common.spending, &args.common.with)?,
    };
    let mut bar = Bar::stoppable("planning", Unit::Keys)?;
    let place = args.place.place();
    let (job, losses) = Job::plan_conversion(place, options, args.place.tasks, REFUSAL, &mut bar)?;
    drop(bar);
    let mut printer = Printer::new();
    if args.common.json {
        printer.line(&job.recipe().json()?)?;
        return printer.success();
    }
    let recipe = job.recipe();
    let JobWork::Convert(convert) = &recipe.work else { return Ok(true) };
    let bytes: u64 = convert.sources.iter().map(|source| source.bytes).sum();
    let files = counted(convert.sources.len() as u64, "file");
    printer.line(&format!("source       {}, {files}, {}", input.to_text(), size_text(bytes)))?;
    for output in &convert.outputs {
        let how = if output.undivided { ", written by one task" } else { "" };
        let path = output.path.to_text();
        printer.line(&format!("output       {path}, {}{how}", size_text(output.bytes)))?;
    }
    losses_text(&losses, &mut printer)?;
    summary(&job, args.place.place(), &mut printer)?;
    printer.success()
}

/// Prints the number of tasks, their memory, and how to run them.
pub(super) fn summary(
    job: &Job,
    place: &Path,
    printer: &mut Printer,
) -> std::result::Result<(), crate::print::Failure> {
    let (recipe, place) = (job.recipe(), place.to_text());
    printer.line(&format!("tasks        {}", grouped(recipe.tasks)))?;
    printer.line(&format!("memory       at most {} per task", size_text(recipe.memory)))?;
    let last = recipe.tasks - 1;
    printer.line(&format!(
        "to run       statelens job run {place} INDEX, for INDEX from 0 to {last}"
    ))?;
    printer.line(&format!("to complete  statelens job commit {place}"))
}

pub(super) fn reading(spending: &Spending, with: &[PathBuf]) -> Result<Reading> {
    let rule = |rule: &CastRule| match &rule.pattern {
        Some(pattern) => format!("{}={}", pattern.as_str(), rule.dtype),
        None => rule.dtype.to_string(),
    };
    Ok(Reading {
        with: with.to_vec(),
        read_as: spending.read_as.iter().map(rule).collect(),
        unstack: spending.unstack,
        // Without a multiple, all limits are lifted.
        limit: spending.limit.as_ref().map(|limits| limits.multiple().unwrap_or(0)),
        max_fetch: spending.max_fetch,
        scratch: spending.scratch,
    })
}
