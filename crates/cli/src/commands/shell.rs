//! `statelens completions` and `statelens man`, made from the definitions of the command line.

use clap::CommandFactory as _;
use clap_complete::Shell;
use statelens_checkpoint::Error;

use crate::args::Cli;
use crate::print::{Outcome, Printer};

pub(crate) fn completions(shell: Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "statelens", &mut script);
    print(&script)
}

/// One page: the command, then every subcommand with its options.
pub(crate) fn man() -> Outcome {
    let mut command = Cli::command();
    // Built, so that subcommands know their full names.
    command.build();
    let mut page = Vec::new();
    let man = clap_mangen::Man::new(command.clone());
    let mut render = || -> std::io::Result<()> {
        man.render(&mut page)?;
        for subcommand in command.get_subcommands() {
            let man = clap_mangen::Man::new(subcommand.clone());
            page.extend_from_slice(
                format!(".SH \"{}\"\n", subcommand.get_name().to_uppercase()).as_bytes(),
            );
            man.render_synopsis_section(&mut page)?;
            man.render_description_section(&mut page)?;
            man.render_options_section(&mut page)?;
            man.render_extra_section(&mut page)?;
        }
        Ok(())
    };
    render().map_err(|error| Error::io(format!("the man page can't be made: {error}")))?;
    print(&page)
}

fn print(bytes: &[u8]) -> Outcome {
    let mut printer = Printer::new();
    printer.bytes(bytes)?;
    printer.finish()?;
    Ok(true)
}
