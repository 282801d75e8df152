//! The command `statelens`: a thin face on the core. It brings files, a terminal and a clock;
//! everything about checkpoints is in the crates below.

mod args;
mod commands;
mod limits;
mod output;
mod print;
mod progress;
mod remote;
mod scratch;
mod sink;
mod source;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Cli, Command};
use crate::print::{Failure, complain};

/// The answer is no.
const NO: u8 = 1;
/// It could not be done.
const FAILED: u8 = 2;

fn main() -> ExitCode {
    output::fail_instead_of_aborting(FAILED);
    // Clap exits with 2 for a wrong command line, 0 for help.
    let cli = Cli::parse();
    if let Some(cap) = cli.max_fetch {
        remote::allow(cap);
    }
    if let Some(limits) = cli.limit {
        limits::set(limits);
    }
    if let Some(most) = cli.scratch {
        scratch::allow(most);
    }
    let outcome = match cli.command {
        Command::Info(args) => commands::info::run(&args),
        Command::Ls(args) => commands::ls::run(&args),
        Command::Show(args) => commands::show::run(&args),
        Command::Manifest(args) => commands::manifest::run(&args),
        Command::Convert(args) => commands::convert::run(&args),
        Command::TensorflowToH5(args) => commands::convert::run_to(args, "cerebras"),
        Command::H5ToTensorflow(args) => commands::convert::run_to(args, "tensorflow"),
        Command::Summary(args) => commands::summary::run(&args),
        Command::Toolbox(command) => commands::toolbox::run(&command),
        Command::Serve(args) => commands::serve::run(&args),
        Command::Open(args) => commands::serve::open(&args),
        Command::Scan(args) => commands::scan::run(&args),
        Command::Formats(args) => commands::formats::run(&args),
        Command::Completions { shell } => commands::shell::completions(shell),
        Command::Man => commands::shell::man(),
    };
    remote::tell();
    match outcome {
        Ok(true) | Err(Failure::Closed) => ExitCode::SUCCESS,
        Ok(false) => NO.into(),
        Err(Failure::Told) => FAILED.into(),
        Err(Failure::Error(error)) => {
            complain(&limits::advise(error).to_string());
            FAILED.into()
        }
    }
}
