//! Scans files for code that runs when they are loaded.
//!
//! [`scan`] collects the findings of opening the file, and searches it for every pickle that any
//! loader would run, and for other code that runs on loading: see [`search`] for the method.

mod findings;
mod indices;
mod search;
mod starts;
#[cfg(test)]
mod tests;
mod workers;
mod zip;

use std::collections::BTreeSet;

use statelens_checkpoint::{
    ErrorKind, FileId, FileSet, Finding, Grade, Limits, OneThread, Progress, Result, Span, Workers,
    try_alloc,
};
use statelens_pickle::ScanOptions;

use self::search::Search;
use crate::budget::Budget;
use crate::joined::UnreadFiles;
use crate::{Probe, Score, cerebras, dcp, not_a_checkpoint, open_one, paths, section, sets, tar};

/// Reports what loading a file with the usual libraries would do. There is a finding for every name
/// that a pickle in it calls and that is not known to be harmless, for other code in it, for data
/// that is truncated or invalid, for everything that could not be examined, and for what opening it
/// reports.
///
/// Every place where a loader would unpickle is examined, regardless of the format, and all bytes
/// are searched for more. In a set of shards, each one is examined. Names that `options` allow are
/// not findings. If nothing is worse than [`Grade::Warning`], everything was examined and nothing
/// was found. Fails if the file can't be read, or the user cancels.
pub fn scan(
    files: FileSet,
    limits: &Limits,
    options: &ScanOptions,
    progress: &mut dyn Progress,
) -> Result<Vec<Finding>> {
    scan_on(&OneThread, files, limits, options, progress)
}

/// Like [`scan`], with several threads that search large files.
pub fn scan_on(
    workers: &dyn Workers,
    files: FileSet,
    limits: &Limits,
    options: &ScanOptions,
    progress: &mut dyn Progress,
) -> Result<Vec<Finding>> {
    scan_set(workers, files, &|_| false, limits, options, progress)
}

/// Like [`scan_on`], but leaves out the other files of its set for whose names `is_elsewhere` is
/// true: they are scanned by themselves.
pub fn scan_set(
    workers: &dyn Workers,
    files: FileSet,
    is_elsewhere: &dyn Fn(&str) -> bool,
    limits: &Limits,
    options: &ScanOptions,
    progress: &mut dyn Progress,
) -> Result<Vec<Finding>> {
    let budget = Budget::within(limits);
    scan_within(files, is_elsewhere, limits, options, budget, workers, progress)
}

fn scan_within(
    files: FileSet,
    is_elsewhere: &dyn Fn(&str) -> bool,
    limits: &Limits,
    options: &ScanOptions,
    budget: Budget,
    workers: &dyn Workers,
    progress: &mut dyn Progress,
) -> Result<Vec<Finding>> {
    let main = files.main()?;
    let set = sets::Sharded::of(&files, limits);
    let parts = set.iter().flatten().flat_map(|set| set.parts(&files));
    let longest = parts.filter_map(|(_, part)| Some(part.len(part.main().ok()?))).max();
    let limits = &limits.fitted(longest.unwrap_or_default().max(files.len(main)));
    let mut search = Search::new(limits, options, budget, workers, progress);
    match set {
        Ok(Some(set)) => {
            search.report_opened("", set.findings(&UnreadFiles::default()));
            for (name, part) in set.parts(&files) {
                if part.main()? == main || !is_elsewhere(name) {
                    one(&mut search, name, &part, true)?;
                }
            }
        }
        Ok(None) => one(&mut search, "", &files, true)?,
        // An index that can't be read; the file may be of another format as well.
        Err(error) => {
            fatal(&error)?;
            search.report_error("", &error);
            file(&mut search, "", &files, main, Vec::new())?;
        }
    }
    Ok(search.finish())
}

/// Like [`scan_on`], for one of many files that are all scanned: the other files of its set are not
/// examined.
pub fn scan_file(
    workers: &dyn Workers,
    files: FileSet,
    limits: &Limits,
    options: &ScanOptions,
    progress: &mut dyn Progress,
) -> Result<Vec<Finding>> {
    let limits = &limits.fitted(files.len(files.main()?));
    let mut search = Search::new(limits, options, Budget::within(limits), workers, progress);
    one(&mut search, "", &files, false)?;
    Ok(search.finish())
}

/// Scans one checkpoint. `label` distinguishes it from others in its set.
fn one(search: &mut Search<'_>, label: &str, files: &FileSet, others: bool) -> Result<()> {
    let main = files.main()?;
    let probe = Probe::new(files)?;
    let best = crate::best(&probe);
    let score = best.map_or(Score::No, |(score, _)| score);
    // The search finds everything that opening a pickle would report, and more. Opening is also
    // most expensive for pickles.
    let mut opened = false;
    if best.is_some_and(|(_, format)| !format.searched) {
        match open_one(files.clone(), search.limits, &mut search.quiet()) {
            Ok(checkpoint) => {
                opened = true;
                search.report_opened(label, checkpoint.findings);
            }
            Err(error) => {
                fatal(&error)?;
                if score >= Score::Magic && !sets::is_unfinished(probe.name()) {
                    search.report_error(label, &error);
                }
            }
        }
    }
    search.found = false;
    search.indexed = 0;
    let slices = slices(&probe, search.limits);
    let within = |id: FileId| {
        let slices = slices.iter().filter(move |span| span.file == id);
        slices.map(|span| (span.offset, span.len)).collect()
    };
    file(search, label, files, main, within(main))?;
    if search.indexed > 0 {
        let opened = open_one(files.clone(), search.limits, &mut search.quiet());
        let finding = match opened {
            Ok(checkpoint) => indices::check(&checkpoint, files, search.indexed)?,
            Err(error) => {
                fatal(&error)?;
                Some(indices::unchecked())
            }
        };
        search.report_opened(label, finding.into_iter().collect());
    }
    if opened && others && cerebras::s3::score(&probe) != Score::No {
        let found = search.objects(files)?;
        search.report_opened(label, found.findings);
        for (name, body) in found.pickled {
            // The library unpickles it, whatever its first bytes are.
            search.file(&name, "object.pkl", body, Vec::new())?;
        }
    }
    for id in ranks(&probe, &slices).into_iter().filter(|_| others) {
        file(search, files.name(id), files, id, within(id))?;
    }
    if is_rank(files.name(main)) && dcp::detect::metadata(files, main).is_empty() {
        search.report_opened(label, vec![alone()]);
    }
    let is_known = opened || search.found || sets::Sharded::is_index(files, search.limits);
    if score < Score::Magic && !is_known {
        unknown(search, label, &probe);
    }
    Ok(())
}

/// Examines one file of a set.
fn file(
    search: &mut Search<'_>,
    label: &str,
    files: &FileSet,
    id: FileId,
    slices: Vec<(u64, u64)>,
) -> Result<()> {
    let source = files.source(id)?;
    // The sweep reads every byte once, in long pieces: the cache would only copy them.
    let is_at_hand = !files.is_remote() && source.overhead() == 0;
    search.direct = is_at_hand.then(|| source.clone());
    search.file(label, files.name(id), files.structure(id)?, slices)
}

/// Returns the parts of a distributed checkpoint's files that torch loads individually, according
/// to the metadata. Empty for other files.
fn slices(probe: &Probe<'_>, limits: &Limits) -> Vec<Span> {
    match is_rank(probe.name()) || dcp::detect::score(probe) != Score::No {
        true => dcp::read::places(probe.files(), limits).unwrap_or_default(),
        false => Vec::new(),
    }
}

/// Returns the rank files of a distributed checkpoint: those in its metadata, and any other in the
/// folder.
fn ranks(probe: &Probe<'_>, slices: &[Span]) -> BTreeSet<FileId> {
    let files = probe.files();
    if dcp::detect::score(probe) == Score::No {
        return BTreeSet::new();
    }
    let folder = paths::folder(probe.name());
    let siblings = files.names().filter(|(_, name)| {
        paths::folder(name) == folder
            && (is_rank(name) || paths::base(name) == ".metadata" || dcp::detect::is_own(name))
    });
    let siblings = siblings.map(|(id, _)| id);
    let mut ranks: BTreeSet<FileId> = slices.iter().map(|span| span.file).chain(siblings).collect();
    ranks.retain(|id| files.main() != Ok(*id));
    ranks
}

fn is_rank(name: &str) -> bool {
    name.ends_with(".distcp")
}

/// Returns the finding for a rank file whose metadata is not in the set.
fn alone() -> Finding {
    Finding::new(Grade::UnknownCode, "Statelens could not examine all of this file")
        .detail(
            "It is a part of a distributed checkpoint, and only `.metadata` records where the \
             pickles that torch loads begin.",
        )
        .advice("Scan the folder, or `.metadata` together with its `.distcp` files.")
}

/// Reports that a file is not a checkpoint.
fn unknown(search: &mut Search<'_>, label: &str, probe: &Probe<'_>) {
    let what = not_a_checkpoint::explain(probe);
    let found = search.findings.is_suspicious();
    let title = match found {
        true => "Not a checkpoint that Statelens knows",
        false => "Not a checkpoint: nothing that would run was found in its bytes",
    };
    let finding = Finding::new(Grade::Note, title)
        .detail(format!("The error was: {}.", what.what()))
        .advice(what.next_step().cloned().unwrap_or_default());
    search.report_opened(label, vec![finding]);
}

/// Returns whether the error is a lack of memory.
fn lacks_memory(error: &statelens_checkpoint::Error) -> bool {
    error.code() == try_alloc::CODE
}

/// Returns errors that end a scan: the file can't be read, the user cancelled, or there is not
/// enough memory. Data that was not examined must not pass for harmless.
fn fatal(error: &statelens_checkpoint::Error) -> Result<()> {
    match error.kind() {
        ErrorKind::Io | ErrorKind::Cancelled => Err(error.clone()),
        _ if lacks_memory(error) => Err(error.clone()),
        _ => Ok(()),
    }
}
