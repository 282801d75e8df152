//! `statelens check` with `--against`.

use std::path::Path;

use statelens::parts::checkpoint::visible;
use statelens::parts::compare::check::{
    CheckOptions, CheckReport, LibraryRelease, Reference, check_checkpoint,
};
use statelens::{Error, Result, listed_keys};

use crate::args::Check;
use crate::print::{CommandResult, Failure, Printer, TextTable, counted, grouped};

pub(crate) fn run(args: &Check) -> CommandResult {
    let Some(against) = &args.against else { return super::folder::run(args) };
    let [file] = args.inputs.files.as_slice() else {
        return Err(Error::refused("--against compares one checkpoint")
            .advice("Check them one by one.")
            .into());
    };
    let common = &args.inputs.common;
    let options = CheckOptions {
        strict: !args.no_strict,
        state: (!args.all).then(|| args.state.clone()),
        release: args.release.as_deref().map(LibraryRelease::parse).transpose()?,
        strict_version: !args.no_strict_version,
    };
    let state = options.state.as_deref().unwrap_or_default();
    let checkpoint = super::open_for_good(file, &common.with)?;
    let answer = check_checkpoint(checkpoint.inner(), reference(against, state)?, &options);
    let mut printer = Printer::for_verdict();
    match common.json {
        true => printer.line(&answer.json())?,
        false => show(&answer, args.no_strict, &mut printer)?,
    }
    printer.finish()?;
    Ok(answer.loads)
}

/// Returns the keys expected by a checkpoint, or by a text file if it is not a checkpoint.
fn reference(path: &Path, state: &str) -> Result<Reference> {
    // A checkpoint may be text, and a list of keys can't be recognised by its content, so try to
    // open it as a checkpoint first.
    let error = match super::open_for_good(path, &[]) {
        Ok(checkpoint) => return Ok(Reference::of(checkpoint.inner(), state)),
        Err(error) => error,
    };
    Ok(Reference::listed(listed_keys(path)?.ok_or(error)?, state))
}

fn show(report: &CheckReport, no_strict: bool, printer: &mut Printer) -> Result<(), Failure> {
    let mut table = TextTable::new(&["", "", "", ""]);
    for line in report.lines() {
        let count = match (line.keys, line.numbers.as_str()) {
            (1, _) => String::new(),
            (keys, "") => format!("{} keys", grouped(keys)),
            (keys, numbers) => format!("{} keys, {numbers}", grouped(keys)),
        };
        let is_skipped = no_strict && line.kind.is_skipped_unless_strict();
        let passed = if is_skipped { "skipped" } else { "" };
        let more = [line.text.as_str(), count.as_str(), passed]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(", ");
        table.row(vec![line.kind.word().to_owned(), line.key, more]);
    }
    table.print_body(printer)?;
    if report.prefixed {
        printer.line("prefix      not all keys start with `model.`, so the trainer adds it")?;
    }
    if let Some(change) = &report.rename {
        printer.line(&format!(
            "rename      {} would match after `statelens convert IN OUT {}`",
            counted(change.keys, "key"),
            change.option
        ))?;
    }
    for (word, text) in report.remarks() {
        printer.line(&format!("{word:<11} {}", visible(&text.to_string())))?;
    }
    let (missing, unexpected) = (report.missing.len() as u64, report.unexpected.len() as u64);
    printer.line(&format!(
        "{}: {} match{}, {} missing, {} unexpected, {} of other shapes",
        report.verdict(),
        counted(report.matching, "key"),
        if report.matching == 1 { "es" } else { "" },
        grouped(missing),
        grouped(unexpected),
        grouped(report.shapes.len() as u64)
    ))
}
