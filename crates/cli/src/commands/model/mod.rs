//! Commands for model families.

mod config;
mod converters;

use crate::args::Model;
use crate::print::Outcome;

pub(crate) fn run(command: &Model) -> Outcome {
    match command {
        Model::ConvertConfig(args) => config::run(args),
        Model::ListConverters(args) => converters::run(args),
    }
}
