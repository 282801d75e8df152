//! `statelens job commit`.

use statelens::Result;
use statelens::job::{ConvertRecipe, Job, JobWork};
use statelens::parts::checkpoint::Plan;
use statelens::parts::convert::RunReport;

use crate::args::JobPlace;
use crate::commands::edits;
use crate::output::stop_signal;
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
    let judge = |plan: &Plan, report: &RunReport| -> Result<()> {
        if convert.options.lossy { Ok(()) } else { edits::refuse_false(&plan.source, report) }
    };
    let mut bar = Bar::new("completing", Unit::Keys).stopped_by(stop_signal()?);
    let committed = job.commit(&judge, &mut bar)?;
    drop(bar);
    let mut printer = Printer::new();
    if args.json {
        printer.line(&convert.json(committed.as_ref()))?;
        printer.finish()?;
        return Ok(true);
    }
    match &committed {
        None => printer.line("the job was committed before")?,
        Some(committed) => {
            let files = convert.outputs.iter().zip(&committed.report.outcomes);
            for (output, outcomes) in files {
                let bytes = outcomes.last().map_or(0, |last| last.offset + last.len);
                let path = output.path.display();
                printer.line(&format!("wrote        {path}, {}", size_text(bytes)))?;
            }
            edits::cast_text(&committed.plan.source, &committed.report, &mut printer)?;
        }
    }
    printer.finish()?;
    Ok(true)
}
