//! `statelens verify`.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use statelens_checkpoint::{Error, ErrorKind, Result};
use statelens_inspect::verify::{Manifest, Problem, Report, Trouble, verify};

use crate::args::Verify;
use crate::limits;
use crate::output::stop_signal;
use crate::print::{Failure, Outcome, Printer, Table};
use crate::progress::{Bar, Unit};

/// The longest manifest that is read.
const LONGEST: u64 = 1 << 30;

pub(crate) fn run(args: &Verify) -> Outcome {
    let manifest = args.manifest.as_deref().map(read).transpose()?;
    let mut opened = true;
    let report = match super::open(&args.input.file, &args.input.common.with) {
        Ok((checkpoint, _)) => {
            limits::check(&checkpoint, "reading all values")?;
            let checks = statelens_formats::checks::checks(&checkpoint, limits::limits())?;
            let mut bar = Bar::new("verifying", Unit::Bytes).stopped_by(stop_signal()?);
            verify(Arc::new(checkpoint), checks, manifest.as_ref(), &mut bar)?
        }
        // So damaged that it does not open: that is an answer, too.
        Err(error) if error.kind() == ErrorKind::Damaged => {
            opened = false;
            let problems = vec![Problem::of_error(Trouble::Damaged, "", &error)];
            Report { problems, ..Report::default() }
        }
        Err(error) => return Err(error.into()),
    };
    let answer = report.answer(args.finite);
    let mut printer = Printer::for_verdict();
    match args.input.common.json {
        true => printer.line(&report.json(answer))?,
        false => show(&report, opened, args.finite, &mut printer)?,
    }
    printer.finish()?;
    Ok(answer)
}

fn read(path: &Path) -> Result<Manifest> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::io("there is no such file"),
        _ => Error::io(format!("it can't be read: {error}")),
    };
    let read = || {
        let metadata = fs::metadata(path).map_err(failed)?;
        if !metadata.is_file() || metadata.len() > LONGEST {
            return Err(Error::refused("this is no manifest"));
        }
        Manifest::parse(&fs::read(path).map_err(failed)?)
    };
    read().map_err(|error| error.in_file(path.display().to_string()))
}

fn show(report: &Report, opened: bool, finite: bool, printer: &mut Printer) -> Result<(), Failure> {
    let mut table = Table::new(&["", "", ""]);
    for line in report.lines(finite) {
        table.row(vec![line.word.into(), line.key, line.text]);
    }
    table.print_body(printer)?;
    for more in report.more() {
        printer.line(&format!("{more}: --json lists them"))?;
    }
    if opened {
        for (label, text) in report.looked_at() {
            printer.line(&format!("{label:<11} {text}"))?;
        }
    }
    printer.line(&report.verdict(finite))
}
