//! `statelens check` without `--against`: folders with models.

use std::path::{Path, PathBuf};

use statelens::PathText as _;
use statelens::folder::{FolderReport, Level, RuleLevels, fix_index};
use statelens::parts::checkpoint::{counted, visible};
use statelens::parts::compare::sarif::SarifLog;
use statelens::parts::formats::is_named_as_weights;
use statelens::{Result, path_text};

use crate::args::Check;
use crate::commands::several;
use crate::limits::{self, limits};
use crate::print::{CommandResult, Failure, Printer, grouped, warn};
use crate::progress::{Bar, Unit};
use crate::remote;

pub(crate) fn run(args: &Check) -> CommandResult {
    let mut levels = RuleLevels::default();
    for level in &args.level {
        levels.set(level)?;
    }
    let (folders, common) = (&args.inputs.files, &args.inputs.common);
    if args.fix_index {
        for folder in folders {
            let mut bar = Bar::new("reading", Unit::Keys);
            for path in fix_index(folder, limits(), &mut bar)? {
                warn(&format!("wrote {}", path.to_text()));
            }
        }
    }
    let check = |folder: &Path| -> Result<FolderReport> {
        let mut bar = Bar::new("checking", Unit::Keys);
        remote::opener(&common.with).check(folder, &levels, &mut bar)
    };
    if args.sarif {
        return sarif(folders, check);
    }
    let [folder] = folders.as_slice() else { return table(folders, common.json, check) };
    let report = check(folder)?;
    verdict(report.whole, |printer| match common.json {
        true => printer.line(&report.json()),
        false => show(&report, printer),
    })
}

/// Prints the findings of all folders as one SARIF log.
fn sarif(folders: &[PathBuf], check: impl Fn(&Path) -> Result<FolderReport>) -> CommandResult {
    let (mut log, mut whole, mut unread) = (SarifLog::default(), true, false);
    for folder in folders {
        match check(folder) {
            Ok(report) => {
                whole &= report.whole;
                log.add_folder(&report, |file| inside(folder, file));
            }
            // An interrupt is not an error of one folder.
            Err(error) if crate::output::caught().is_some() => return Err(error.into()),
            Err(error) => {
                log.add_unread(&path_text(folder), error.what());
                warn(&limits::advise(error).to_string());
                unread = true;
            }
        }
    }
    let printed =
        verdict(whole, |printer| printer.line(&log.json("check", env!("CARGO_PKG_VERSION"))));
    match printed {
        Ok(true) if unread => Err(Failure::Reported),
        printed => printed,
    }
}

fn verdict(whole: bool, print: impl FnOnce(&mut Printer) -> Result<(), Failure>) -> CommandResult {
    let mut printer = Printer::for_verdict();
    print(&mut printer)?;
    printer.finish()?;
    Ok(whole)
}

/// Returns the path of a file of a folder; that of the folder if there is no name.
fn inside(folder: &Path, file: &str) -> String {
    let is_file = |url: &str| is_named_as_weights(url) || url.ends_with(".json");
    let is_folder = match remote::address(folder) {
        Some(url) => !is_file(url),
        None => folder.is_dir(),
    };
    let folder = match is_folder {
        true => folder,
        false => folder.parent().unwrap_or(Path::new("")),
    };
    match file {
        "" => folder.to_text(),
        file => folder.join(file).to_text(),
    }
}

/// Prints one table of several folders, or one JSON object.
fn table(
    folders: &[PathBuf],
    json: bool,
    check: impl Fn(&Path) -> Result<FolderReport>,
) -> CommandResult {
    let heads = ["verdict", ">errors", ">warnings", "first"];
    several::each(folders, &heads, json, |folder| {
        let report = check(folder)?;
        let first = report.findings.iter().find(|finding| finding.level >= Level::Warning);
        let cells = vec![
            if report.whole { "whole" } else { "not whole" }.to_owned(),
            grouped(report.errors),
            grouped(report.warnings),
            first.map_or(String::new(), |first| format!("{}: {}", first.rule, first.text)),
        ];
        let answer = report.whole;
        Ok(several::FileRow { cells, report, answer, incomplete: false })
    })
}

fn show(report: &FolderReport, printer: &mut Printer) -> Result<(), Failure> {
    for finding in &report.findings {
        let word = finding.level.word();
        printer.line(&format!("{word:<8} {}", visible(&finding.text)))?;
        printer.line(&format!("         rule   {}", finding.rule))?;
        if finding.level > Level::Note {
            printer.line(&format!("         do     {}", visible(&finding.fix)))?;
        }
    }
    printer.line(&report.verdict())?;
    let fixable = |rule: &str| rule.starts_with("index-") && rule != "index-stale";
    let count = report.findings.iter().filter(|finding| fixable(&finding.rule)).count() as u64;
    match count {
        0 => Ok(()),
        count => {
            printer.line(&format!("{} of the index: see --fix-index", counted(count, "finding")))
        }
    }
}
