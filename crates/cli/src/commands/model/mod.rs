//! Commands for model families.

mod adapter;
mod checkpoint;
mod config;
mod converters;
mod description;
mod files;
mod folding;
mod lora;
mod parts;
mod preview;
mod requested;
mod siblings;
mod source;

use crate::args::ModelCommand;
use crate::print::CommandResult;

pub(crate) use description::{config_of, print};

pub(crate) fn run(command: &ModelCommand) -> CommandResult {
    match command {
        ModelCommand::Checkpoint(args) => checkpoint::run(args),
        ModelCommand::FoldLora(args) => lora::run(args),
        ModelCommand::ConvertConfig(args) => config::run(args),
        ModelCommand::ListConverters(args) => converters::run(args),
    }
}
