//! `statelens summary`.

use std::io::Write as _;

use statelens::parallel;
use statelens_checkpoint::{Checkpoint, Error, Leaf, Result};
use statelens_describe::share::{
    KeysAs, LinkOptions, Measuring, Outline, link, write_html, write_json, write_markdown,
    write_text,
};

use crate::args::{LinkKeys, SummaryArgs, To};
use crate::output::{Folders, Output, check_target, keep_all, stop_signal};
use crate::print::{CommandResult, Printer};
use crate::progress::{Bar, Unit};
use crate::{limits, remote};

pub(crate) fn run(args: &SummaryArgs) -> CommandResult {
    let (checkpoint, sources) = super::open(&args.file, &args.with)?;
    checkpoint.room(750)?;
    let leaves = checkpoint.leaves();
    let mut outline = Outline::new(&checkpoint, &leaves);
    let text = match &args.link {
        Some(base) => {
            read_values(args, &mut outline, &checkpoint, &leaves)?;
            address(base, &outline, args)?
        }
        None => {
            let to = kind(args)?;
            if let Some(target) = &args.output {
                check_target(target, args.force, &sources)?;
            }
            read_values(args, &mut outline, &checkpoint, &leaves)?;
            match to {
                To::Md => write_markdown(&outline),
                To::Html => write_html(&outline),
                To::Json => write_json(&outline),
                To::Txt => write_text(&outline),
            }
        }
    };
    match &args.output {
        Some(target) => write(target, args, &text)?,
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
        _ => Err(Error::refused("its extension is not supported")
            .in_file(output.display().to_string())
            .advice("Choose one with --to: md, html, json or txt.")),
    }
}

fn address(base: &str, outline: &Outline, args: &SummaryArgs) -> Result<String> {
    if base.contains('#') {
        return Err(Error::refused(format!("`{base}` already has a #, which the link needs"))
            .advice("Give the address of the page without it."));
    }
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
    let fragment = link(outline, &options).map_err(|error| {
        error.advice(
            "Write it to a file that opens everywhere: `statelens summary FILE -o OUT.html`.",
        )
    })?;
    Ok(format!("{base}{fragment}\n"))
}

fn read_values(
    args: &SummaryArgs,
    outline: &mut Outline,
    checkpoint: &Checkpoint,
    leaves: &[Leaf],
) -> Result<()> {
    if !args.stats && !args.content {
        return Ok(());
    }
    limits::check(checkpoint, "reading all values")?;
    let mut bar = Bar::new("reading", Unit::Bytes).stopped_by(stop_signal()?);
    let mut measuring = Measuring::new(checkpoint, leaves, args.stats);
    parallel::drive(&mut measuring, remote::workers(&[&args.file]), &mut bar)?;
    measuring.finish(outline)
}

fn write(target: &std::path::Path, args: &SummaryArgs, text: &str) -> Result<()> {
    let mut folders = Folders::make(target.parent())?;
    let output = Output::create(target, args.force, text.len() as u64)?;
    (&*output.file).write_all(text.as_bytes()).map_err(|error| {
        Error::io(format!("writing failed: {error}")).in_file(target.display().to_string())
    })?;
    keep_all(vec![output], args.durable.sync())?;
    folders.keep();
    Ok(())
}
