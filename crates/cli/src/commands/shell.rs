//! `statelens completions` and `statelens man`, generated from the definitions of the command line.

use clap_complete::Shell;
use statelens::Error;

use crate::print::{CommandResult, Printer};

pub(crate) fn completions(shell: Shell) -> CommandResult {
    let mut script = Vec::new();
    clap_complete::generate(
        shell,
        &mut crate::args::command(super::serve::has_page()),
        "statelens",
        &mut script,
    );
    print(&script)
}

/// Prints one page: the command, then every subcommand with its options.
pub(crate) fn man() -> CommandResult {
    let mut command = crate::args::command(super::serve::has_page()).disable_help_subcommand(true);
    // Building it gives subcommands their full names.
    command.build();
    let mut page = Vec::new();
    let man = clap_mangen::Man::new(command.clone());
    let mut render = || -> std::io::Result<()> {
        man.render_title(&mut page)?;
        man.render_name_section(&mut page)?;
        man.render_synopsis_section(&mut page)?;
        man.render_description_section(&mut page)?;
        man.render_options_section(&mut page)?;
        under(&mut page, "EXAMPLES", None, |out| man.render_extra_section(out))?;
        for subcommand in command.get_subcommands() {
            let man = clap_mangen::Man::new(subcommand.clone());
            let name = format!("statelens {}", subcommand.get_name()).to_uppercase();
            page.extend_from_slice(format!(".SH \"{name}\"\n").as_bytes());
            under(&mut page, "", Some("SYNOPSIS"), |out| man.render_synopsis_section(out))?;
            under(&mut page, "", Some("DESCRIPTION"), |out| man.render_description_section(out))?;
            under(&mut page, "", Some("OPTIONS"), |out| man.render_options_section(out))?;
            under(&mut page, "", Some("EXTRA"), |out| man.render_extra_section(out))?;
        }
        man.render_version_section(&mut page)
    };
    render().map_err(|error| Error::io(format!("the man page can't be made: {error}")))?;
    print(&page)
}

/// Renders a section of clap's under the heading `name`. With `within`, a section of that name
/// becomes paragraphs of the current section.
fn under(
    page: &mut Vec<u8>,
    name: &str,
    within: Option<&str>,
    render: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let mut section = Vec::new();
    render(&mut section)?;
    for line in section.split_inclusive(|byte| *byte == b'\n') {
        match (line.strip_prefix(b".SH "), within) {
            (None, _) => page.extend_from_slice(line),
            (Some(_), None) => page.extend_from_slice(format!(".SH {name}\n").as_bytes()),
            // Another heading of clap's, such as that of a group of options.
            (Some(heading), Some(within)) if heading.trim_ascii() != within.as_bytes() => {
                page.extend_from_slice(b".SS ");
                page.extend_from_slice(heading);
            }
            (Some(_), Some(_)) => page.extend_from_slice(b".PP\n"),
        }
    }
    Ok(())
}

fn print(bytes: &[u8]) -> CommandResult {
    let mut printer = Printer::new();
    printer.bytes(bytes)?;
    printer.success()
}
