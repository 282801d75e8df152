//! `statelens job run`.

use statelens::job::{Job, TaskEnd, index_from_environment};
use statelens::parts::values::fields;

use crate::args::JobRun;
use crate::print::{CommandResult, Printer};
use crate::progress::{Bar, Unit};

pub(super) fn run(args: &JobRun) -> CommandResult {
    let index = match args.index {
        Some(index) => index,
        None => index_from_environment()?,
    };
    let job = Job::open(&args.place.job)?;
    let mut bar = Bar::stoppable("running", Unit::Bytes)?;
    let mut ends = Vec::new();
    let outcome = job.run_group(index, args.per, &mut bar, &mut |task, end| {
        ends.push((task, end));
        Ok(())
    });
    drop(bar);
    let mut printer = Printer::for_verdict();
    // The result of the job does not depend on whether this can be printed.
    let _ = ends.iter().try_for_each(|(task, end)| tell(args, *task, *end, &mut printer));
    let _ = printer.finish();
    outcome?;
    Ok(true)
}

fn tell(
    args: &JobRun,
    task: u64,
    end: TaskEnd,
    printer: &mut Printer,
) -> std::result::Result<(), crate::print::Failure> {
    let before = end == TaskEnd::DoneBefore;
    if !args.place.json {
        let how = if before { "was done before" } else { "is done" };
        return printer.line(&format!("task {task} {how}"));
    }
    printer.report(&fields! { task: task, done_before: before })
}
