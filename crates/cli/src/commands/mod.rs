//! One module per command.

pub(crate) mod convert;
pub(crate) mod edits;
pub(crate) mod formats;
mod histogram;
pub(crate) mod info;
pub(crate) mod job;
pub(crate) mod ls;
pub(crate) mod manifest;
pub(crate) mod merge;
pub(crate) mod model;
mod pictures;
pub(crate) mod scan;
pub(crate) mod serve;
pub(crate) mod several;
pub(crate) mod shell;
pub(crate) mod show;
pub(crate) mod summary;
pub(crate) mod toolbox;
pub(crate) mod values;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use statelens_checkpoint::{Checkpoint, Error, Finding, Leaf, Result, known_key, visible};
use statelens_convert::CastRule;
use statelens_describe::near_keys;

use crate::limits::limits;
use crate::print::{Failure, Printer, complain, grade_text};
use crate::progress::{Bar, Unit};
use crate::source::{self, FileSource, Listings, open_checkpoint};
use crate::{remote, scratch};

/// Opens a checkpoint; also returns its source files.
fn open(file: &Path, with: &[PathBuf]) -> Result<(Checkpoint, Vec<Arc<FileSource>>)> {
    let (checkpoint, sources) = open_any(file, with)?;
    // Memory for the list of leaves and their counts; callers that need more per leaf check again.
    checkpoint.room(300)?;
    Ok((checkpoint, sources))
}

/// The dtypes that arrays without a dtype are read as (`--read-as`).
static READ_AS: OnceLock<Vec<CastRule>> = OnceLock::new();

/// Sets the rules by which arrays without a dtype are read from now on.
pub(crate) fn read_as(rules: Vec<CastRule>) {
    // Can't fail: a command sets them once, before it opens a file.
    let _ = READ_AS.set(rules);
}

fn open_any(file: &Path, with: &[PathBuf]) -> Result<(Checkpoint, Vec<Arc<FileSource>>)> {
    let mut bar = Bar::new("opening", Unit::Keys);
    let (checkpoint, sources) = match remote::address(file) {
        Some(url) => (remote::open(url, with, &mut bar)?, Vec::new()),
        None if file == Path::new("-") => {
            let opened = source::standard_input(with)?;
            let files = opened.files.clone().with_scratch(scratch::on_disk());
            (statelens_formats::open(files, limits(), &mut bar)?, opened.sources())
        }
        None => {
            let (listings, scratch) = (Listings::default(), scratch::on_disk());
            open_checkpoint(file, with, &listings, limits(), &scratch, &mut bar)?
        }
    };
    match READ_AS.get().map_or(&[][..], |rules| rules) {
        [] => Ok((checkpoint, sources)),
        rules => match statelens_convert::read_as(rules, &checkpoint)? {
            Some(read) => Ok((read, sources)),
            None => {
                let file = file.display();
                complain(&format!(
                    "--read-as changes nothing in {file}: all its arrays have a dtype"
                ));
                Ok((checkpoint, sources))
            }
        },
    }
}

/// Opens a checkpoint that is needed until the process ends. It is never freed: dropping a hundred
/// thousand values one by one would take as long as listing them.
fn open_for_good(file: &Path, with: &[PathBuf]) -> Result<&'static Arc<Checkpoint>> {
    open(file, with).map(|(checkpoint, _)| &*Box::leak(Box::new(Arc::new(checkpoint))))
}

/// Prints findings as indented paragraphs, the worst first.
fn print_findings(findings: &[Finding], printer: &mut Printer) -> Result<(), Failure> {
    let mut sorted: Vec<&Finding> = findings.iter().collect();
    sorted.sort_by_key(|finding| std::cmp::Reverse(finding.grade));
    for finding in sorted {
        let word = grade_text(finding.grade, 12);
        printer.line(&format!("{word}  {}", visible(&finding.title)))?;
        if let Some(call) = &finding.call {
            let text = match call.arguments.is_empty() {
                true => format!("{}.{}", call.module, call.name),
                false => format!("{}.{}({})", call.module, call.name, call.arguments),
            };
            printer.line(&format!("              call   {} (never run)", visible(&text)))?;
        }
        for (name, text) in
            [("place", &finding.place), ("why", &finding.detail), ("do", &finding.advice)]
        {
            if !text.is_empty() {
                printer.line(&format!("              {name:6} {}", visible(text)))?;
            }
        }
    }
    Ok(())
}

/// Returns the leaf with this key; otherwise, the error lists similar keys.
fn leaf<'a>(leaves: &'a [Leaf], key: &str, file: &Path) -> Result<&'a Leaf> {
    let whole = leaves.iter().find(|leaf| leaf.flat.to_lossy() == key);
    let short = || leaves.iter().find(|leaf| known_key(&leaf.flat.to_lossy()) == key);
    whole.or_else(short).ok_or_else(|| {
        let near = near_keys(leaves, key, 5);
        let near: Vec<String> =
            near.iter().map(|leaf| format!("`{}`", leaf.flat.to_lossy())).collect();
        Error::refused(format!("there is no key `{key}`"))
            .in_file(file.display().to_string())
            .advice(match near.is_empty() {
                true => "`statelens ls` lists the keys.".into(),
                false => format!("Similar keys: {}.", near.join(", ")),
            })
    })
}
