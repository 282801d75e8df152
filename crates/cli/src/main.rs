//! The command `statelens`: a thin layer over the library crates. It provides files, a terminal and
//! a clock; everything about checkpoints is in those crates.

mod args;
mod commands;
mod limits;
mod output;
mod print;
mod progress;
mod remote;
mod scratch;
mod source;

use std::io::Write as _;
use std::process::ExitCode;

use clap::FromArgMatches as _;
use statelens_inspect::visible;

use crate::args::{Cli, Command};
use crate::print::{Failure, complain};

/// Exit status for a negative result.
const NO: u8 = 1;
/// Exit status for a failure.
const FAILED: u8 = 2;

fn main() -> ExitCode {
    // Clap exits with 2 for a wrong command line, 0 for help.
    let matches = args::command(commands::serve::has_page())
        .try_get_matches()
        .unwrap_or_else(|error| wrong(&error));
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| wrong(&error));
    if let Some(limits) = cli.command.limit() {
        limits::set(limits.clone());
    }
    if let Some(spending) = cli.command.spending() {
        if let Some(cap) = spending.max_fetch {
            remote::allow(cap);
        }
        commands::read_as(spending.read_as.clone());
        if let Some(most) = spending.scratch {
            scratch::allow(most);
        }
    }
    let outcome = match cli.command {
        Command::Info(args) => commands::info::run(&args),
        Command::Ls(args) => commands::ls::run(&args),
        Command::Show(args) => commands::show::run(&args),
        Command::Manifest(args) => commands::manifest::run(&args),
        Command::Convert(args) => commands::convert::run(&args),
        Command::Merge(args) => commands::merge::run(&args),
        Command::Job(args) => commands::job::run(&args),
        Command::TensorflowToH5(args) => commands::convert::run_to(args, "cerebras"),
        Command::H5ToTensorflow(args) => commands::convert::run_to(args, "tensorflow"),
        Command::Summary(args) => commands::summary::run(&args),
        Command::Values(command) => commands::values::run(&command),
        Command::Toolbox(command) => commands::toolbox::run(&command),
        Command::Model(command) => commands::model::run(&command),
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
        Err(Failure::Told) => failed(),
        Err(Failure::Error(error)) => {
            complain(&limits::advise(error).to_string());
            failed()
        }
    }
}

/// Reports an error in the command line, or prints the requested help. Control characters are made
/// visible, because an argument may be a file name chosen by a stranger.
fn wrong(error: &clap::Error) -> ! {
    let text = error.render().to_string();
    let seen: Vec<String> = text.lines().map(visible).collect();
    if error.use_stderr() && text.lines().ne(seen.iter()) {
        // If standard error is closed, there is nowhere to report this.
        let _ = writeln!(std::io::stderr(), "{}", seen.join("\n"));
        std::process::exit(FAILED.into());
    }
    error.exit()
}

/// Returns the exit status of a failure; after a signal, the one that shells report (130 for
/// Ctrl-C).
fn failed() -> ExitCode {
    output::caught().map_or(FAILED, |signal| 128u8.saturating_add(signal)).into()
}
