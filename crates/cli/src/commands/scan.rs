//! `statelens scan`.

mod folder;

use std::path::{Path, PathBuf};

use statelens::parts::checkpoint::visible;
use statelens::parts::compare::sarif::SarifLog;
use statelens::parts::describe::grade_word;
use statelens::parts::formats::ScanOptions;
use statelens::parts::values::{fields, findings_json, worst};
use statelens::{AllCores, Error, Finding, Grade, Result, path_text};

use crate::args::Scan;
use crate::limits::{self, limits};
use crate::print::{CommandResult, Failure, Printer, TextTable, warn};
use crate::progress::{Bar, Unit};
use crate::{remote, source};

/// Succeeds if every file was scanned and no finding is worse than a warning.
pub(crate) fn run(args: &Scan) -> CommandResult {
    let options = ScanOptions { allow: args.allow.iter().cloned().collect() };
    let mut scan = Scanning {
        options,
        json: args.common.json,
        sarif: args.sarif.then(SarifLog::default),
        several: args.paths.len() > 1 || args.paths.iter().any(|path| path.is_dir()),
        printer: Some(Printer::new()),
        rows: Vec::new(),
        count: Count::default(),
    };
    for path in &args.paths {
        scan.path(path, args)?;
    }
    if let Some(log) = scan.sarif.take() {
        scan.print(|printer| printer.line(&log.json("scan", env!("CARGO_PKG_VERSION"))))?;
    } else if scan.several && !scan.json {
        let line = scan.count.line();
        let rows = std::mem::take(&mut scan.rows);
        scan.print(|printer| {
            if !rows.is_empty() {
                printer.line("")?;
                let mut table = TextTable::new(&["file", "worst", "finding"]);
                rows.into_iter().for_each(|row| table.row(row));
                table.print(printer)?;
            }
            printer.line(&line)
        })?;
    }
    if let Some(printer) = scan.printer.take() {
        printer.finish().or_else(closed_is_fine)?;
    }
    let Count { bad, unread, .. } = scan.count;
    match (bad, unread) {
        (1.., _) => Ok(false),
        (0, 0) => Ok(true),
        // Each unreadable file was reported when it was found.
        (0, _) => Err(Failure::Reported),
    }
}

struct Scanning {
    options: ScanOptions,
    json: bool,
    /// Collects the findings, if they are printed as one log.
    sarif: Option<SarifLog>,
    /// Whether the paths may hold more than one file.
    several: bool,
    /// `None` after standard output was closed. The scan goes on, because the exit status must
    /// still report the verdict.
    printer: Option<Printer>,
    /// Rows of the final table: files with findings.
    rows: Vec<Vec<String>>,
    count: Count,
}

/// Numbers of files by their worst finding.
#[derive(Default)]
struct Count {
    files: u64,
    by_grade: [u64; 6],
    /// Files with a finding that fails the scan.
    bad: u64,
    unread: u64,
}

impl Scanning {
    fn path(&mut self, path: &Path, args: &Scan) -> Result<(), Failure> {
        if path.is_dir() {
            return folder::walk(path, &mut |file, files| match files {
                Ok(files) => self.scan(file, |options, bar| {
                    statelens::parts::formats::scan_file(&AllCores, files, limits(), options, bar)
                }),
                Err(error) => self.failed(file, &error),
            });
        }
        let with = &args.common.with;
        let folder = match remote::opener(with).hub_folder(path) {
            Ok(folder) => folder,
            Err(error) => return self.failed(path, &error),
        };
        if let Some(folder) = folder {
            self.several = true;
            let ids: Vec<_> = folder.iter().map(|(id, file)| (id, file.name.clone())).collect();
            let top = path_text(path);
            for (id, name) in ids {
                let file = format!("{}/{name}", top.trim_end_matches('/'));
                let files = folder.opened_at(id);
                self.scan(Path::new(&file), |options, bar| {
                    statelens::parts::formats::scan_file(&AllCores, files, limits(), options, bar)
                })?;
            }
            return Ok(());
        }
        self.scan(path, |options, bar| match path == Path::new("-") {
            true => {
                let files = source::standard_input(with)?.files;
                statelens::parts::formats::scan_on(&AllCores, files, limits(), options, bar)
            }
            false => {
                let listed = args.paths.iter().map(PathBuf::as_path).collect();
                remote::opener(with).scan(path, &listed, options, bar)
            }
        })
    }

    /// Scans one file, or the set that it names, and prints the findings.
    fn scan(
        &mut self,
        path: &Path,
        find: impl FnOnce(&ScanOptions, &mut Bar) -> Result<Vec<Finding>>,
    ) -> Result<(), Failure> {
        let found = find(&self.options, &mut Bar::new("scanning", Unit::Bytes));
        match found {
            Ok(findings) => {
                self.count.add(&findings);
                let worst = findings.iter().max_by_key(|finding| finding.grade);
                if let Some(worst) = worst.filter(|worst| worst.grade > Grade::Note) {
                    self.rows.push(vec![
                        path_text(path),
                        grade_word(worst.grade).to_owned(),
                        worst.title.clone(),
                    ]);
                }
                self.report(path, &findings)
            }
            Err(error) => self.failed(path, &error),
        }
    }

    fn report(&mut self, path: &Path, findings: &[Finding]) -> Result<(), Failure> {
        let file = path_text(path);
        if let Some(log) = &mut self.sarif {
            log.add_scan(&file, findings);
            return Ok(());
        }
        let (json, several) = (self.json, self.several);
        self.print(|printer| {
            if json {
                let json = findings_json(several.then_some(&*file), findings);
                return printer.line(&json);
            }
            let file = visible(&file);
            match findings {
                [] if several => printer.line(&format!("{file}: nothing to report")),
                [] => printer.line("nothing to report"),
                [one] if several && one.grade == Grade::Note => {
                    let mut title = one.title.chars();
                    let first = title.next().map(|first| first.to_lowercase().to_string());
                    let title = format!("{}{}", first.unwrap_or_default(), title.as_str());
                    printer.line(&format!("{file}: {}", visible(&title)))
                }
                _ => {
                    if several {
                        printer.line(&format!("{file}:"))?;
                    }
                    super::print_findings(findings, printer)
                }
            }
        })
    }

    /// Reports a file that can't be read.
    fn failed(&mut self, path: &Path, error: &Error) -> Result<(), Failure> {
        // Code scanning expects a log of every run. An interrupt is not an error of one file.
        let is_reported = self.several || self.sarif.is_some();
        if !is_reported || crate::output::caught().is_some() {
            return Err(error.clone().into());
        }
        self.count.files += 1;
        self.count.unread += 1;
        let row = [&*path_text(path), "not read", error.what()];
        self.rows.push(row.map(str::to_owned).to_vec());
        warn(&limits::advise(error.clone()).to_string());
        if let Some(log) = &mut self.sarif {
            log.add_unread(&path_text(path), error.what());
        }
        if !self.json {
            return Ok(());
        }
        self.print(|printer| {
            let path = path_text(path);
            printer.report(&fields! { path: path, error: error.to_string() })
        })
    }

    /// Prints, unless standard output was closed.
    fn print(
        &mut self,
        print: impl FnOnce(&mut Printer) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Some(printer) = &mut self.printer else { return Ok(()) };
        match print(printer) {
            Err(Failure::Closed) => self.printer = None,
            done => done?,
        }
        Ok(())
    }
}

impl Count {
    fn add(&mut self, findings: &[Finding]) {
        let worst = worst(findings);
        self.files += 1;
        self.by_grade[worst.map_or(0, |grade| grade as usize + 1)] += 1;
        self.bad += u64::from(worst > Some(Grade::Warning));
    }

    /// Returns a summary such as `4 files: 2 with danger, 2 with nothing to report`.
    fn line(&self) -> String {
        let mut parts = Vec::new();
        let grades =
            [Grade::Danger, Grade::UnknownCode, Grade::Damage, Grade::Warning, Grade::Note];
        for grade in grades {
            match (self.by_grade[grade as usize + 1], grade) {
                (0, _) => {}
                (count, Grade::Note) => parts.push(format!("{count} with notes only")),
                (count, grade) => parts.push(format!("{count} with {}", grade_word(grade))),
            }
        }
        if self.by_grade[0] > 0 {
            parts.push(format!("{} with nothing to report", self.by_grade[0]));
        }
        if self.unread > 0 {
            parts.push(format!("{} could not be read", self.unread));
        }
        match self.files {
            0 => "no files".to_owned(),
            1 => format!("1 file: {}", parts.join(", ")),
            count => format!("{count} files: {}", parts.join(", ")),
        }
    }
}

fn closed_is_fine(failure: Failure) -> Result<(), Failure> {
    match failure {
        Failure::Closed => Ok(()),
        failure => Err(failure),
    }
}
