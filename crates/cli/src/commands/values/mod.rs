//! The commands that look at values, one file each.

mod hist;
mod measure;
mod stats;

use crate::args::Values;
use crate::print::Outcome;

pub(crate) fn run(command: &Values) -> Outcome {
    match command {
        Values::Stats(args) => stats::run(args),
        Values::Hist(args) => hist::run(args),
    }
}
