//! `statelens job`.

mod commit;
mod many;
mod plan;
mod run;
mod status;

use crate::args::Job;
use crate::limits;
use crate::print::{CommandResult, Failure, warn};

pub(crate) fn run(args: &Job) -> CommandResult {
    let done = match args {
        Job::Plan(args) => {
            return match &args.many {
                Some(many) => many::plan(many),
                None => plan::convert(&args.convert),
            };
        }
        Job::Run(args) => run::run(args),
        Job::Commit(args) => commit::run(args),
        Job::Status(args) => status::status(args),
        Job::Abort(args) => status::abort(args),
    };
    match done {
        // The status is "no", not "failed", if trying again is useless.
        Err(Failure::Error(error)) if !statelens::job::worth_trying_again(&error) => {
            warn(&limits::advise(error).to_string());
            Ok(false)
        }
        done => done,
    }
}
