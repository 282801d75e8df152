//! The program `statelens`.

use std::process::ExitCode;

fn main() -> ExitCode {
    statelens_cli::run(std::env::args_os()).into()
}
