//! `statelens summary`.

use statelens::PathText as _;
use statelens::parts::describe::share::{
    self, KeysAs, LinkOptions, Outline, write_html, write_json, write_markdown, write_picture,
    write_text,
};
use statelens::{Error, ErrorKind, Result};

use crate::args::{LinkKeys, SummaryArgs, To};
use crate::commands::model;
use crate::output::{check_target, write_small};
use crate::print::{CommandResult, Printer};
use crate::progress::{Bar, Unit};

pub(crate) fn run(args: &SummaryArgs) -> CommandResult {
    let checkpoint = super::open(&args.file, &args.with)?;
    let outline = || {
        let mut bar = Bar::stoppable("reading", Unit::Bytes)?;
        let config = model::config_of(&args.file, None)?;
        checkpoint.outline(args.stats, args.content, config.as_ref(), &mut bar)
    };
    let text = match &args.link {
        Some(base) => address(base, &outline()?, args)?,
        None => {
            let to = kind(args)?;
            if let Some(target) = &args.output {
                check_target(target, args.replacing.force, checkpoint.sources())?;
            }
            let outline = outline()?;
            match to {
                To::Md => write_markdown(&outline),
                To::Html => write_html(&outline),
                To::Json => write_json(&outline),
                To::Txt => write_text(&outline),
                To::Svg => write_picture(&outline, true),
            }
        }
    };
    match &args.output {
        Some(target) => {
            let files = [(target.clone(), text)];
            write_small(&files, args.replacing.force, args.replacing.sync())?;
        }
        None => {
            let mut printer = Printer::new();
            printer.text(&text)?;
            printer.finish()?;
        }
    }
    Ok(true)
}

/// Returns the format of `--to`, or else that of the extension.
fn kind(args: &SummaryArgs) -> Result<To> {
    if let Some(to) = args.to {
        return Ok(to);
    }
    let Some(output) = &args.output else { return Ok(To::Txt) };
    let extension = output.extension().and_then(std::ffi::OsStr::to_str).unwrap_or_default();
    match extension.to_ascii_lowercase().as_str() {
        "md" | "markdown" => Ok(To::Md),
        "html" | "htm" => Ok(To::Html),
        "json" => Ok(To::Json),
        "txt" => Ok(To::Txt),
        "svg" => Ok(To::Svg),
        _ => Err(Error::refused("its extension is not supported")
            .in_file(output.to_text())
            .advice("Choose one with --to: md, html, json, txt or svg.")),
    }
}

fn address(base: &str, outline: &Outline, args: &SummaryArgs) -> Result<String> {
    let keys = match args.keys {
        LinkKeys::Plain => KeysAs::Plain,
        LinkKeys::Coded => KeysAs::Coded,
        LinkKeys::Hidden => KeysAs::Hidden,
    };
    let options = LinkOptions {
        keys,
        values: args.values,
        findings: !args.no_findings,
        statistics: args.stats,
    };
    let address = share::address(base, outline, &options).map_err(|error| match error.kind() {
        ErrorKind::Limit => error.advice(
            "Write it to a file that opens everywhere: `statelens summary FILE -o OUT.html`.",
        ),
        _ => error,
    })?;
    Ok(address + "\n")
}
