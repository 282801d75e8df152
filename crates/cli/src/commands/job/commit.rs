//! `statelens job commit`.

use statelens::job::{Job, JobWork};
use statelens::report::cast_json;
use statelens_checkpoint::{Plan, Result};
use statelens_convert::RunReport;
use statelens_inspect::Json;

use super::ended;
use crate::args::JobPlace;
use crate::commands::edits;
use crate::output::stop_signal;
use crate::print::{CommandResult, Printer, size_text};
use crate::progress::{Bar, Unit};

pub(super) fn run(args: &JobPlace) -> CommandResult {
    let job = match super::plan::absolute(&args.job).and_then(|place| Job::open(&place)) {
        Ok(job) => job,
        Err(error) => return ended(error),
    };
    match &job.recipe().work {
        JobWork::Convert(_) => convert(&job, args),
        JobWork::Many(many) => super::many::commit(&job, many, args),
    }
}

fn convert(job: &Job, args: &JobPlace) -> CommandResult {
    let JobWork::Convert(convert) = &job.recipe().work else { return Ok(false) };
    let judge = |plan: &Plan, report: &RunReport| -> Result<()> {
        if convert.options.lossy { Ok(()) } else { edits::refuse_false(&plan.source, report) }
    };
    let mut bar = Bar::new("completing", Unit::Keys).stopped_by(stop_signal()?);
    let committed = match job.commit(&judge, &mut bar) {
        Ok(committed) => committed,
        Err(error) => return ended(error),
    };
    drop(bar);
    let mut printer = Printer::new();
    if args.json {
        let mut json = Json::new();
        json.object(|json| {
            json.name("statelens").number(1);
            json.name("committed_before").bool(committed.is_none());
            json.name("files").array(|json| {
                let outputs = convert.outputs.iter();
                outputs.for_each(|output| json.str(&output.path.to_string_lossy()));
            });
            if let Some(committed) = &committed {
                json.name("bytes").number(committed.report.bytes);
                let report = &committed.report;
                cast_json(json, report, &report.worst(&committed.plan.source));
            }
        });
        printer.line(json.as_str())?;
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
