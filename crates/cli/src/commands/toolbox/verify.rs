//! `statelens verify`.

use std::fs;
use std::path::{Path, PathBuf};

use statelens::PathText as _;
use statelens::parts::compare::sarif::SarifLog;
use statelens::parts::compare::verify::{Manifest, VerificationReport};
use statelens::{Checkpoint, Error, Result, path_text};

use crate::args::Verify;
use crate::commands::several;
use crate::limits;
use crate::print::{CommandResult, Failure, Printer, TextTable, grouped, warn};
use crate::progress::{Bar, Unit};

/// Bytes of the longest manifest that is read.
const LONGEST: u64 = 1 << 30;

pub(crate) fn run(args: &Verify) -> CommandResult {
    let (files, common) = (&args.inputs.files, &args.inputs.common);
    if args.sarif {
        return sarif(args);
    }
    let manifest = args.manifest.as_deref().map(read).transpose()?;
    if let [file] = files.as_slice() {
        let (report, opened) = verify_file(file, &common.with, manifest.as_ref())?;
        let answer = report.answer(args.finite);
        let mut printer = Printer::for_verdict();
        match common.json {
            true => printer.line(&report.json(answer))?,
            false => show(&report, opened, args.finite, &mut printer)?,
        }
        printer.finish()?;
        return match report.is_incomplete(args.finite) {
            true => Err(Failure::Incomplete),
            false => Ok(answer),
        };
    }
    if manifest.is_some() {
        return Err(Error::refused("a manifest describes one checkpoint")
            .advice("Verify them one by one.")
            .into());
    }
    let heads = ["verdict", ">problems", ">tensors", ">bytes"];
    several::each(files, &heads, common.json, |file| {
        let (report, _) = verify_file(file, &common.with, None)?;
        let answer = report.answer(args.finite);
        let cells = vec![
            report.verdict(args.finite),
            grouped(report.result.problems.len() as u64),
            grouped(report.result.tensors),
            grouped(report.result.bytes),
        ];
        let incomplete = report.is_incomplete(args.finite);
        let report = report.answered(answer);
        Ok(several::FileRow { cells, report, answer: answer || incomplete, incomplete })
    })
}

/// Prints the problems of all files as one SARIF log.
fn sarif(args: &Verify) -> CommandResult {
    let (mut log, mut answer, mut incomplete) = (SarifLog::default(), true, false);
    let mut unread = false;
    let mut failed = |log: &mut SarifLog, file: &Path, error: Error| {
        log.add_unread(&path_text(file), error.what());
        warn(&limits::advise(error).to_string());
        unread = true;
    };
    let manifest = args.manifest.as_deref().map(|path| (path, read(path)));
    let (manifest, files) = match manifest {
        Some((path, Err(error))) => {
            failed(&mut log, path, error);
            (None, &[][..])
        }
        Some((_, Ok(manifest))) => (Some(manifest), args.inputs.files.as_slice()),
        None => (None, args.inputs.files.as_slice()),
    };
    for file in files {
        match verify_file(file, &args.inputs.common.with, manifest.as_ref()) {
            Ok((report, _)) => {
                log.add_verification(&path_text(file), &report, args.finite);
                incomplete |= report.is_incomplete(args.finite);
                answer &= report.answer(args.finite) || report.is_incomplete(args.finite);
            }
            // An interrupt is not an error of one file.
            Err(error) if crate::output::caught().is_some() => return Err(error.into()),
            Err(error) => failed(&mut log, file, error),
        }
    }
    let mut printer = Printer::for_verdict();
    printer.line(&log.json("verify", env!("CARGO_PKG_VERSION")))?;
    printer.finish()?;
    match answer {
        true if unread => Err(Failure::Reported),
        true if incomplete => Err(Failure::Incomplete),
        answer => Ok(answer),
    }
}

/// Verifies one checkpoint; also returns whether it could be opened.
fn verify_file(
    file: &Path,
    with: &[PathBuf],
    manifest: Option<&Manifest>,
) -> Result<(VerificationReport, bool)> {
    let opened = crate::commands::open(file, with);
    let is_open = opened.is_ok();
    let mut bar = Bar::stoppable("verifying", Unit::Bytes)?;
    Ok((Checkpoint::verify_opened(opened, manifest, &mut bar)?, is_open))
}

fn read(path: &Path) -> Result<Manifest> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::io("the file does not exist"),
        _ => Error::io(format!("it can't be read: {error}")),
    };
    let read = || {
        let metadata = fs::metadata(path).map_err(failed)?;
        if !metadata.is_file() || metadata.len() > LONGEST {
            return Err(Error::refused("this is not a manifest"));
        }
        Manifest::parse(&fs::read(path).map_err(failed)?)
    };
    read().map_err(|error| error.in_file(path.to_text()))
}

fn show(
    report: &VerificationReport,
    opened: bool,
    finite: bool,
    printer: &mut Printer,
) -> Result<(), Failure> {
    let mut table = TextTable::new(&["", "", ""]);
    for line in report.lines(finite) {
        table.row(vec![line.word.into(), line.key, line.text]);
    }
    table.print_body(printer)?;
    for more in report.more(finite) {
        printer.line(&format!("{more}: --json lists them"))?;
    }
    if opened {
        for (label, text) in report.scope() {
            printer.line(&format!("{label:<11} {text}"))?;
        }
    }
    printer.line(&report.verdict(finite))
}
