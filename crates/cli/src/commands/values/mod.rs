//! The commands that look at values, one file each.

mod again;
mod export;
mod hist;
mod measure;
mod picture;
mod rows;
mod singular;
mod stats;

use crate::args::Values;
use crate::print::Outcome;

pub(crate) fn run(command: &Values) -> Outcome {
    match command {
        Values::Stats(args) => stats::run(args),
        Values::Hist(args) => hist::run(args),
        Values::Export(args) => export::run(args),
        Values::Singular(args) => singular::run(args),
        Values::Rows(args) => rows::run(args),
    }
}
