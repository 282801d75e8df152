//! `statelens job`.

mod checkpoints;
mod commit;
mod many;
mod plan;
mod run;
mod status;

use statelens_checkpoint::Error;

use crate::args::Job;
use crate::limits;
use crate::print::{CommandResult, Failure, complain};

pub(crate) fn run(args: &Job) -> CommandResult {
    match args {
        Job::Plan(args) => match &args.many {
            Some(many) => many::plan(many),
            None => plan::convert(&args.convert),
        },
        Job::Run(args) => run::run(args),
        Job::Commit(args) => commit::run(args),
        Job::Status(args) => status::status(args),
        Job::Abort(args) => status::abort(args),
    }
}

/// Returns the result of a step that failed: "no" if trying again is useless.
fn ended(error: Error) -> CommandResult {
    if statelens::job::worth_trying_again(&error) {
        return Err(Failure::Error(error));
    }
    complain(&limits::advise(error).to_string());
    Ok(false)
}
