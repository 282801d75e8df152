//! `statelens job commit`.

use statelens::PathText as _;
use statelens::job::{Committed, ConvertRecipe, Job, JobWork};

use crate::args::JobPlace;
use crate::commands::losses::{REFUSAL, cast_text};
use crate::print::{CommandResult, Printer, size_text};
use crate::progress::{Bar, Unit};

pub(super) fn run(args: &JobPlace) -> CommandResult {
    let job = Job::open(&args.job)?;
    match &job.recipe().work {
        JobWork::Convert(recipe) => convert(&job, recipe, args),
        JobWork::Many(_) => super::many::commit(&job, args),
    }
}

fn convert(job: &Job, convert: &ConvertRecipe, args: &JobPlace) -> CommandResult {
    let mut bar = Bar::stoppable("completing", Unit::Keys)?;
    let committed = job.commit(REFUSAL, &mut bar)?;
    drop(bar);
    let mut printer = Printer::new();
    if args.json {
        printer.line(&convert.json(&committed))?;
        return printer.success();
    }
    match &committed {
        Committed::Before(_) => printer.line("the job was committed before")?,
        Committed::Now(committed) => {
            let files = convert.outputs.iter().zip(&committed.report.outcomes);
            for (output, outcomes) in files {
                let bytes = outcomes.last().map_or(0, |last| last.offset + last.len);
                let path = output.path.to_text();
                printer.line(&format!("wrote        {path}, {}", size_text(bytes)))?;
            }
            for path in &committed.removed {
                printer.line(&format!("removed      {}", path.to_text()))?;
            }
            let worst = committed.report.worst(&committed.plan.source);
            cast_text(&committed.report, &worst, &mut printer)?;
        }
    }
    printer.success()
}
