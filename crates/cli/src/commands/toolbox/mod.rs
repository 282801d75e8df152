//! The commands for training, one module each.

mod check;
pub(super) mod dataloader;
mod diff;
mod fix;
mod folder;
mod prune;
mod runs;
pub(super) mod states;
mod upgrade;
mod verify;

use statelens::Error;
use statelens::PathText as _;

use super::{open, open_for_good};
use crate::args::Toolbox;
use crate::print::CommandResult;

pub(crate) fn run(command: &Toolbox) -> CommandResult {
    match command {
        Toolbox::States(args) => states::run(&args.file, &args.common),
        Toolbox::Diff(args) => diff::run(args),
        Toolbox::Check(args) => check::run(args),
        Toolbox::Verify(args) => verify::run(args),
        Toolbox::Upgrade(args) => upgrade::run(args),
        Toolbox::FixCheckpointSpec(args) => fix::run(args),
        Toolbox::ConvertDataloaderState(args) => dataloader::run(args),
        Toolbox::Runs(args) => runs::run(args),
        Toolbox::Latest(args) => runs::latest(args),
        Toolbox::Prune(args) => prune::run(args),
    }
}

/// Returns the error for a folder that can't be read.
fn folder_error(error: &std::io::Error, folder: &std::path::Path) -> Error {
    use std::io::ErrorKind;
    let error = match error.kind() {
        ErrorKind::NotFound => Error::io("the folder does not exist"),
        ErrorKind::NotADirectory => Error::refused("this is a file, not a folder"),
        ErrorKind::PermissionDenied => Error::io("you don't have permission to read this folder"),
        _ => Error::io(format!("it can't be read: {error}")),
    };
    error.in_file(folder.to_text())
}
