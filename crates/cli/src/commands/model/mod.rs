//! Commands for model families.

mod adapter;
mod asked;
mod beside;
mod checkpoint;
mod config;
mod converters;
mod files;
mod folding;
mod lora;
mod parts;
mod preview;
mod source;
mod told;

use crate::args::Model;
use crate::print::CommandResult;

pub(crate) use told::{of, print};

pub(crate) fn run(command: &Model) -> CommandResult {
    match command {
        Model::Checkpoint(args) => checkpoint::run(args),
        Model::FoldLora(args) => lora::run(args),
        Model::ConvertConfig(args) => config::run(args),
        Model::ListConverters(args) => converters::run(args),
    }
}
