//! `statelens job run`.

use statelens::job::{Job, JobWork, TaskEnd};
use statelens_checkpoint::{Error, Result};
use statelens_inspect::Json;

use super::ended;
use crate::args::JobRun;
use crate::output::stop_signal;
use crate::print::{CommandResult, Printer};
use crate::progress::{Bar, Unit};

/// Variables with the number of a task, by which engines start many.
const VARIABLES: [&str; 4] =
    ["SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX", "AWS_BATCH_JOB_ARRAY_INDEX", "STATELENS_TASK"];

pub(super) fn run(args: &JobRun) -> CommandResult {
    match tasks(args) {
        Ok(()) => Ok(true),
        Err(error) => ended(error),
    }
}

fn tasks(args: &JobRun) -> Result<()> {
    let index = match args.index {
        Some(index) => index,
        None => from_environment()?,
    };
    let job = Job::open(&super::plan::absolute(&args.place.job)?)?;
    let count = job.recipe().tasks;
    let first = index.saturating_mul(args.per);
    if first >= count {
        let groups = count.div_ceil(args.per);
        return Err(Error::refused(format!("there is no task {index}"))
            .in_file(args.place.job.display().to_string())
            .expected(format!("0 to {}", groups - 1)));
    }
    let tasks = first..first.saturating_add(args.per).min(count);
    let mut bar = Bar::new("running", Unit::Bytes).stopped_by(stop_signal()?);
    let mut ends = Vec::new();
    let mut note = |task, end| {
        ends.push((task, end));
        Ok(())
    };
    let outcome = match &job.recipe().work {
        JobWork::Convert(_) => job.run(tasks, &mut bar, &mut note),
        JobWork::Many(many) => super::many::run(&job, many, tasks, &mut note),
    };
    drop(bar);
    let mut printer = Printer::for_verdict();
    // The result of the job does not depend on whether this can be printed.
    let _ = ends.iter().try_for_each(|(task, end)| tell(args, *task, *end, &mut printer));
    let _ = printer.finish();
    outcome
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
    let mut json = Json::new();
    json.object(|json| {
        json.name("statelens").number(1);
        json.name("task").number(task);
        json.name("done_before").bool(before);
    });
    printer.line(json.as_str())
}

/// Returns the number of the task that an engine gives to this process.
fn from_environment() -> Result<u64> {
    let found = VARIABLES.iter().find_map(|name| Some((name, std::env::var(name).ok()?)));
    let (name, text) = found.ok_or_else(|| {
        Error::refused("the number of the task is not given")
            .advice(format!("Name it, or set one of {}.", VARIABLES.join(", ")))
    })?;
    text.trim()
        .parse()
        .map_err(|_| Error::refused(format!("{name} is not the number of a task: {text:?}")))
}
