//! `statelens verify`.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use statelens_checkpoint::{Error, ErrorKind, Limits, Result};
use statelens_inspect::verify::{Manifest, Problem, Report, Trouble, verify};

use crate::args::Verify;
use crate::output::stop_signal;
use crate::print::{Failure, Outcome, Printer, Table, grouped, size_text};
use crate::progress::{Bar, Unit};

/// The longest manifest that is read.
const LONGEST: u64 = 1 << 30;
/// Tensors of which the same is told, each on a line.
const MOST: usize = 20;

pub(crate) fn run(args: &Verify) -> Outcome {
    let manifest = args.manifest.as_deref().map(read).transpose()?;
    let mut opened = true;
    let report = match super::open(&args.input.file, &args.input.common.with) {
        Ok((checkpoint, _)) => {
            let checks = statelens_formats::checks::checks(&checkpoint, &Limits::default())?;
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
    let answer = report.sound() && (report.numbers.is_empty() || !args.finite);
    let mut printer = Printer::new();
    match args.input.common.json {
        true => printer.line(&report.json(answer))?,
        false => show(&report, answer, opened, args.finite, &mut printer)?,
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

fn show(
    report: &Report,
    answer: bool,
    opened: bool,
    finite: bool,
    printer: &mut Printer,
) -> Result<(), Failure> {
    let mut table = Table::new(&["", "", ""]);
    for problem in &report.problems {
        table.row(vec![problem.trouble.word().into(), problem.key.clone(), problem.text()]);
    }
    let word = if finite { "not finite" } else { "note" };
    for numbers in report.numbers.iter().take(MOST) {
        table.row(vec![word.into(), numbers.key.clone(), numbers.text()]);
    }
    for (key, why) in report.unread.iter().take(MOST) {
        table.row(vec!["not read".into(), key.clone(), why.clone()]);
    }
    table.print_body(printer)?;
    for (list, what) in [(report.numbers.len(), "not finite"), (report.unread.len(), "not read")] {
        if list > MOST {
            let more = grouped((list - MOST) as u64);
            printer.line(&format!("and {more} more tensors that are {what}: --json lists them"))?;
        }
    }
    if opened {
        summary(report, printer)?;
    }
    let count = report.problems.len() as u64;
    printer.line(&match (answer, count) {
        (true, _) => "it is sound".to_owned(),
        (false, 0) => "it is not finite".to_owned(),
        (false, 1) => "it is not sound: 1 problem".to_owned(),
        (false, count) => format!("it is not sound: {} problems", grouped(count)),
    })
}

/// What was looked at.
fn summary(report: &Report, printer: &mut Printer) -> Result<(), Failure> {
    let sums = report.checksums.iter().filter(|(_, count)| *count > 0);
    let sums: Vec<String> =
        sums.map(|(kind, count)| format!("{} {kind}", grouped(*count))).collect();
    let mut checksums = match sums.is_empty() {
        true => "there are none of tensors in this file".to_owned(),
        false => sums.join(", "),
    };
    if report.unchecked > 0 && !sums.is_empty() {
        checksums += &format!("; none covers {} tensors", grouped(report.unchecked));
    }
    if report.without > 0 {
        checksums += &format!("; {} are left blank", grouped(report.without));
    }
    let read = format!("{} tensors, {}", grouped(report.tensors), size_text(report.bytes));
    printer.line(&format!("read        {read}"))?;
    printer.line(&format!("checksums   {checksums}"))?;
    if let Some((entries, matching)) = report.manifest {
        let text = format!("{} of {} entries match", grouped(matching), grouped(entries));
        printer.line(&format!("manifest    {text}"))?;
    }
    Ok(())
}
