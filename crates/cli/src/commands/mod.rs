//! One module per command.

pub(crate) mod convert;
pub(crate) mod edits;
pub(crate) mod formats;
mod histogram;
pub(crate) mod info;
pub(crate) mod job;
mod losses;
pub(crate) mod ls;
pub(crate) mod manifest;
pub(crate) mod merge;
pub(crate) mod model;
pub(crate) mod pictures;
mod quantised;
pub(crate) mod scan;
pub(crate) mod serve;
pub(crate) mod several;
pub(crate) mod shell;
pub(crate) mod show;
pub(crate) mod summary;
pub(crate) mod toolbox;
pub(crate) mod values;
mod writing;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use statelens::PathText as _;
use statelens::parts::checkpoint::{Leaf, known_key, visible};
use statelens::parts::convert::CastRule;
use statelens::parts::describe::near_keys;
use statelens::{Checkpoint, Error, Finding, Result};

use crate::print::{Failure, Printer, grade_text, warn};
use crate::progress::{Bar, Unit};
use crate::{remote, source};

fn open(file: &Path, with: &[PathBuf]) -> Result<Checkpoint> {
    let mut bar = Bar::new("opening", Unit::Keys);
    let opener = remote::opener(with);
    let checkpoint = match file == Path::new("-") {
        true => opener.open_files(&source::standard_input(with)?, &mut bar)?,
        false => opener.open(file, &mut bar)?,
    };
    let rules = READ_AS.get().map_or(&[][..], |rules| rules);
    let checkpoint = match checkpoint.read_as(rules)? {
        Some(read) => read,
        None => {
            if !rules.is_empty() {
                let file = file.to_text();
                warn(&format!("--read-as changes nothing in {file}: all its arrays have a dtype"));
            }
            checkpoint
        }
    };
    let is_unstacked = UNSTACK.get().copied().unwrap_or(false);
    let unstacked = if is_unstacked { checkpoint.unstacked()? } else { None };
    if is_unstacked && unstacked.is_none() {
        let file = file.to_text();
        warn(&format!("--unstack changes nothing in {file}: no tensor holds several layers"));
    }
    let checkpoint = unstacked.unwrap_or(checkpoint);
    // Memory for the list of leaves and their counts; callers that need more per leaf check again.
    checkpoint.inner().room(300)?;
    Ok(checkpoint)
}

/// The dtypes that arrays without a dtype are read as (`--read-as`).
static READ_AS: OnceLock<Vec<CastRule>> = OnceLock::new();

/// Sets the rules by which arrays without a dtype are read from now on.
pub(crate) fn read_as(rules: Vec<CastRule>) {
    // Can't fail: a command sets them once, before it opens a file.
    let _ = READ_AS.set(rules);
}

/// Whether tensors that hold all layers become one tensor for each layer (`--unstack`).
static UNSTACK: OnceLock<bool> = OnceLock::new();

/// Sets whether tensors of all layers are split by layer from now on.
pub(crate) fn unstack(is_set: bool) {
    // Can't fail: a command sets it once, before it opens a file.
    let _ = UNSTACK.set(is_set);
}

/// Opens a checkpoint that is needed until the process ends. It is never freed: dropping a hundred
/// thousand values one by one would take as long as listing them.
fn open_for_good(file: &Path, with: &[PathBuf]) -> Result<&'static Checkpoint> {
    open(file, with).map(|checkpoint| &*Box::leak(Box::new(checkpoint)))
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
        let advice = finding.advice.to_string();
        for (name, text) in [("place", &finding.place), ("why", &finding.detail), ("do", &advice)] {
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
        Error::refused(format!("there is no key `{key}`")).in_file(file.to_text()).advice(
            match near.is_empty() {
                true => "`statelens ls` lists the keys.".into(),
                false => format!("Similar keys: {}.", near.join(", ")),
            },
        )
    })
}
