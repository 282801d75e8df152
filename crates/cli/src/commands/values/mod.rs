//! The commands that read values, one module each.

mod export;
mod hist;
mod measure;
mod rows;
mod selected;
mod singular;
pub(crate) mod stats;

use crate::args::ValuesCommand;
use crate::print::CommandResult;

pub(crate) fn run(command: &ValuesCommand) -> CommandResult {
    match command {
        ValuesCommand::Stats(args) => stats::run(args),
        ValuesCommand::Hist(args) => hist::run(&args.input, &args.key, args.scale, args.bins),
        ValuesCommand::Export(args) => export::run(args),
        ValuesCommand::Singular(args) => singular::run(args),
        ValuesCommand::Rows(args) => rows::run(&args.input, &args.key, args.lines(), args.top),
    }
}
