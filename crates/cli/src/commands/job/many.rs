//! One command for many checkpoints: planning it, and its report.

use statelens::job::{CheckpointResult, Job, JobWork, ManyCommand, ManyReport};

use super::plan;
use crate::args::{JobMany, JobPlace};
use crate::print::{CommandResult, Failure, Printer, TextTable, counted, grouped, size_text};

/// Checkpoints that the report for people lists.
const MAX_LISTED: usize = 100;

pub(super) fn plan(args: &JobMany) -> CommandResult {
    let command = match args {
        JobMany::Verify { finite, .. } => ManyCommand::Verify { finite: *finite },
        JobMany::Scan { allow, .. } => ManyCommand::Scan { allow: allow.clone() },
        JobMany::Stats { by, .. } => ManyCommand::Stats { by: by.map(Into::into) },
        JobMany::Manifest { .. } => ManyCommand::Manifest {},
    };
    let (many, name) = (args.many(), command.name());
    let reading = plan::reading(&many.spending, &[])?;
    let (place, list) = (many.place.place(), many.from.as_deref());
    let job = Job::plan_many(place, command, &many.paths, list, reading, many.place.tasks)?;
    let mut printer = Printer::new();
    match &job.recipe().work {
        JobWork::Many(recipe) if !many.json => {
            let lengths = recipe.checkpoints.iter().filter_map(|one| one.bytes);
            let bytes = size_text(lengths.fold(0, u64::saturating_add));
            let checkpoints = counted(recipe.checkpoints.len() as u64, "checkpoint");
            printer.line(&format!("{name:<12} {checkpoints}, {bytes}"))?;
            plan::summary(&job, place, &mut printer)?;
        }
        _ => printer.line(&job.recipe().json()?)?,
    }
    printer.success()
}

pub(super) fn commit(job: &Job, args: &JobPlace) -> CommandResult {
    let report = job.commit_many()?;
    let mut printer = Printer::for_verdict();
    match args.json {
        true => printer.line(&report.json()?)?,
        false => show(&report, &mut printer)?,
    }
    printer.finish()?;
    Ok(report.passes())
}

fn show(report: &ManyReport, printer: &mut Printer) -> Result<(), Failure> {
    let bad: Vec<&CheckpointResult> = report.checkpoints.iter().filter(|one| !one.passes).collect();
    if !bad.is_empty() {
        let mut table = TextTable::new(&["checkpoint", "result"]);
        for one in bad.iter().take(MAX_LISTED) {
            let why = one.error.clone().unwrap_or_else(|| one.verdict.clone());
            table.row(vec![one.path.clone(), why]);
        }
        table.print(printer)?;
    }
    if bad.len() > MAX_LISTED {
        let more = grouped((bad.len() - MAX_LISTED) as u64);
        printer.line(&format!("{more} more: --json lists them"))?;
    }
    let total = counted(report.checkpoints.len() as u64, "checkpoint");
    printer.line(&format!(
        "{total}: {} passed, {} did not, {} could not be read",
        grouped(report.passed),
        grouped(report.failed),
        grouped(report.unread)
    ))
}
