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

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;

use clap::{FromArgMatches as _, Parser as _};
use statelens::parts::checkpoint::visible;
use statelens::parts::describe::model::Config;
use statelens::{Error, Progress, Result};

pub use commands::pictures::{PictureFile, picture_is_svg, save_difference};
pub use commands::serve::single_page;
pub use commands::show::snippet;

use crate::args::{Cli, Command, Toolbox};
use crate::print::{Failure, warn};

/// Exit status for a negative result.
const NO: u8 = 1;
/// Exit status for a failure.
const FAILED: u8 = 2;
/// Exit status for a check that found nothing wrong, but could not check everything.
const INCOMPLETE: u8 = 3;

/// Runs the command with these arguments, the first of which is its name. Returns the exit status.
///
/// Call it once in a process: limits and other settings stay, and some commands never free what
/// they opened.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    // Clap exits with 2 for a wrong command line, 0 for help.
    let matches = args::command(commands::serve::has_page()).try_get_matches_from(arguments);
    let cli = matches.and_then(|matches| Cli::from_arg_matches(&matches));
    match cli {
        Ok(cli) => command(cli),
        Err(error) => wrong(&error),
    }
}

/// Returns the config with which `info` describes the model: the file `named`, or that in the folder
/// of the checkpoint, if there is one.
pub fn model_config(checkpoint: &Path, named: Option<&Path>) -> Result<Option<Config>> {
    commands::model::config_of(checkpoint, named)
}

/// The result of a command that ran as a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Called {
    /// Whether the result is positive.
    pub passed: bool,
    /// The output.
    pub printed: String,
    /// The warnings and notes, one per line.
    pub notes: Vec<String>,
}

/// Runs a command with these arguments, the first of which is its name, as a function of another
/// program. Signals are left to the calling program, which stops it by `progress`. It may fetch
/// `max_fetch` bytes from web servers.
///
/// Commands that never free what they opened are refused; they have functions in `statelens`.
pub fn call(
    arguments: impl IntoIterator<Item = OsString>,
    max_fetch: Option<u64>,
    progress: Box<dyn Progress>,
) -> Result<Called> {
    let parsed = Cli::try_parse_from([OsString::from("statelens")].into_iter().chain(arguments));
    let command = parsed.map_err(|error| Error::refused(usage(&error)))?.command;
    if !is_function(&command) {
        return Err(Error::refused("this command can't be run as a function"));
    }
    let run = || remote::limited(max_fetch, || print::captured(|| dispatch(command)));
    let (done, printed, notes) = output::watched(progress, run);
    let called = |passed| Called { passed, printed, notes };
    match done {
        Ok(passed) => Ok(called(passed)),
        Err(Failure::Closed) => Ok(called(true)),
        Err(Failure::Incomplete) => Ok(called(false)),
        Err(Failure::Error(error)) => Err(error),
        Err(Failure::Reported) => {
            let what = called(false).notes.join(" ");
            Err(Error::refused(if what.is_empty() { "it failed".to_owned() } else { what }))
        }
    }
}

/// Returns the error of a command line, without the usage and the tips below it.
fn usage(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).collect();
    let what = lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
    what.strip_prefix("error: ").unwrap_or(&what).to_owned()
}

/// Returns whether a command frees what it opens, and prints JSON or a path.
fn is_function(command: &Command) -> bool {
    matches!(
        command,
        Command::Convert(_)
            | Command::Merge(_)
            | Command::Model(_)
            | Command::Formats(_)
            | Command::Toolbox(
                Toolbox::Runs(_)
                    | Toolbox::Latest(_)
                    | Toolbox::Prune(_)
                    | Toolbox::Upgrade(_)
                    | Toolbox::FixCheckpointSpec(_)
                    | Toolbox::ConvertDataloaderState(_)
            )
    )
}

fn command(cli: Cli) -> u8 {
    if let Some(limits) = cli.command.limit() {
        limits::set(limits.clone());
    }
    if let Some(spending) = cli.command.spending() {
        if let Some(cap) = spending.max_fetch {
            remote::allow(cap);
        }
        commands::read_as(spending.read_as.clone());
        commands::unstack(spending.unstack);
        if let Some(most) = spending.scratch {
            scratch::allow(most);
        }
    }
    let outcome = dispatch(cli.command);
    remote::report_fetched();
    match outcome {
        Ok(true) | Err(Failure::Closed) => 0,
        Ok(false) => NO,
        Err(Failure::Incomplete) => INCOMPLETE,
        Err(Failure::Reported) => failed(),
        Err(Failure::Error(error)) => {
            warn(&limits::advise(error).to_string());
            failed()
        }
    }
}

fn dispatch(command: Command) -> print::CommandResult {
    match command {
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
    }
}

/// Reports an error in the command line, or prints the requested help. Control characters are made
/// visible, because an argument may be a file name chosen by a stranger.
fn wrong(error: &clap::Error) -> u8 {
    let text = error.render().to_string();
    let seen: Vec<String> = text.lines().map(visible).collect();
    if error.use_stderr() && text.lines().ne(seen.iter()) {
        // If standard error is closed, there is nowhere to report this.
        let _ = writeln!(std::io::stderr(), "{}", seen.join("\n"));
        return FAILED;
    }
    // As above.
    let _ = error.print();
    u8::try_from(error.exit_code()).unwrap_or(FAILED)
}

/// Returns the exit status of a failure; after a signal, the one that shells report (130 for
/// Ctrl-C).
fn failed() -> u8 {
    output::caught().map_or(FAILED, |signal| 128u8.saturating_add(signal))
}
