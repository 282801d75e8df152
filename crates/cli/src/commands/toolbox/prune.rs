//! `statelens prune`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use serde::Serialize;
use statelens::PathText as _;
use statelens::parts::checkpoint::visible;
use statelens::parts::compare::runs::FileEntry;
use statelens::{Error, Result};

use super::runs::open_checkpoints;
use crate::args::Prune;
use crate::output::{stop_signal, sync_folder};
use crate::print::{CommandResult, Failure, Printer, counted, grouped, size_text};
use crate::progress::{Bar, Unit};

/// The folder in the run folder that files are moved to, unless they are deleted for good.
const TRASH: &str = "statelens-trash";

pub(crate) fn run(args: &Prune) -> CommandResult {
    let args = &Prune { folder: super::runs::entered(&args.folder), ..*args };
    let run = super::runs::read(&args.folder)?;
    let keep = usize::try_from(args.keep).unwrap_or(usize::MAX);
    let folder = &args.folder.folder;
    let stop = if args.apply { Some(stop_signal()?) } else { None };
    let mut bar = Bar::new("opening", Unit::Files);
    if let Some(stop) = &stop {
        bar = bar.stopped_by(stop.clone());
    }
    let checks =
        open_checkpoints(folder, &run, &mut bar, FileEntry::is_loadable).map_err(|_| {
            Error::io("stopped while checkpoints were being opened; nothing was changed")
                .in_file(folder.to_text())
        })?;
    drop(bar);
    let unsound = run.unsound(&checks);
    let mut printer = Printer::new();
    let mut freed = 0u64;
    let mut removed = Vec::new();
    // A link has no data of its own, so it does not count as a checkpoint that is kept.
    let is_link = |entry: &FileEntry| {
        fs::symlink_metadata(folder.join(&entry.name)).is_ok_and(|data| data.is_symlink())
    };
    let uncounted: Vec<Option<String>> = run
        .entries
        .iter()
        .zip(&unsound)
        .map(|(entry, why)| why.clone().or_else(|| is_link(entry).then(|| "a link".to_owned())))
        .collect();
    let mut all = run.prunable(keep, args.every, &uncounted, &run.best(&checks));
    if !all.is_empty() {
        let stay = run.entries.iter().filter(|entry| !all.contains(entry));
        let targets = targets(folder, stay)?;
        all.retain(|entry| !paths(folder, entry).iter().any(|path| holds_any(path, &targets)));
    }
    if args.delete && !all.is_empty() {
        let stay = run.checkpoints().filter(|entry| !all.contains(entry));
        settle(folder, stay)?;
    }
    for entry in &all {
        // Stop only between two files, so that each is either in its place or in the trash.
        if stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Err(stopped(args, removed.len(), all.len()).into());
        }
        let paths = paths(folder, entry);
        // Links are skipped: their target is elsewhere.
        let is_folder = entry.is_folder();
        let is_there = |data: fs::Metadata| if is_folder { data.is_dir() } else { data.is_file() };
        if !paths.iter().all(|path| fs::symlink_metadata(path).is_ok_and(is_there)) {
            continue;
        }
        if args.apply {
            paths.iter().try_for_each(|path| remove(folder, is_folder, path, args.delete))?;
        }
        freed = freed.saturating_add(entry.bytes);
        removed.push(entry.name.as_str());
    }
    let stay = (run.checkpoints().count() - removed.len()) as u64;
    let unsound: Vec<(&str, &str)> = run
        .entries
        .iter()
        .zip(&unsound)
        .filter(|(entry, _)| entry.is_checkpoint())
        .filter_map(|(entry, why)| Some((entry.name.as_str(), why.as_deref()?)))
        .collect();
    let sound = run.checkpoints().count() - unsound.len();
    match args.json {
        true => {
            let unsound = unsound.iter().map(|&(name, why)| UnsoundFields { name, why });
            let fields = PruneFields {
                applied: args.apply,
                deleted: args.delete,
                files: &removed,
                unsound: unsound.collect(),
                bytes: freed,
                stay,
                newer_by_time: &run.newer_by_time,
            };
            printer.report(&fields)?;
        }
        false => {
            for (name, why) in &unsound {
                printer.line(&format!("not sound  {}: {}", visible(name), visible(why)))?;
            }
            if sound < keep && !unsound.is_empty() {
                printer.line(&format!(
                    "{} of {} to keep: nothing is removed until there are more sound checkpoints",
                    grouped(sound as u64),
                    grouped(keep as u64)
                ))?;
            }
            if let Some(why) = run.restarted() {
                printer.line(&format!("{}; the newest by time stay as well", visible(&why)))?;
            }
            show(args, &removed, freed, stay, &mut printer)?;
        }
    }
    printer.success()
}

/// Returns the paths of a folder, or of the files of a checkpoint.
fn paths(folder: &Path, entry: &FileEntry) -> Vec<PathBuf> {
    match entry.is_folder() {
        true => vec![folder.join(&entry.name)],
        false => entry.files().iter().map(|(name, _)| folder.join(name)).collect(),
    }
}

/// Returns the paths, with links resolved, of the files of the checkpoints that stay and of all
/// links in the folder, such as `best`: links are never removed.
fn targets<'a>(folder: &Path, stay: impl Iterator<Item = &'a FileEntry>) -> Result<Vec<PathBuf>> {
    let failed = |error| Error::io(format!("can't list {}: {error}", folder.to_text()));
    let listed = fs::read_dir(folder).map_err(failed)?;
    let links = listed.flatten().map(|entry| entry.path()).filter(|path| path.is_symlink());
    let files = stay.flat_map(FileEntry::files).map(|(name, _)| folder.join(name));
    Ok(files.chain(links).filter_map(|path| fs::canonicalize(path).ok()).collect())
}

/// Returns whether any of the files is this file, or in this folder.
fn holds_any(path: &Path, files: &[PathBuf]) -> bool {
    fs::canonicalize(path).is_ok_and(|path| files.iter().any(|file| file.starts_with(&path)))
}

/// Syncs the checkpoints that stay to the disk before the others are removed irrevocably.
fn settle<'a>(folder: &Path, stay: impl Iterator<Item = &'a FileEntry>) -> Result<()> {
    let failed = |path: &Path, error: std::io::Error| {
        Error::io(format!("it can't be flushed to the disk: {error}"))
            .in_file(path.to_text())
            .advice("Nothing was deleted.")
    };
    for (name, _) in stay.flat_map(FileEntry::files) {
        let path = folder.join(name);
        let settled = fs::File::open(&path).and_then(|file| file.sync_all());
        settled.map_err(|error| failed(&path, error))?;
    }
    sync_folder(folder).map_err(|error| failed(folder, error))
}

/// Returns the error after an interrupt.
fn stopped(args: &Prune, done: usize, all: usize) -> Error {
    let (done, all) = (grouped(done as u64), grouped(all as u64));
    let word = if args.delete { "deleted" } else { "moved to the trash" };
    Error::io(format!("stopped after {done} of {all} files were {word}"))
        .in_file(args.folder.folder.to_text())
        .advice("The others are unchanged. Run the same command again to continue.")
}

fn remove(folder: &Path, is_folder: bool, path: &Path, delete: bool) -> Result<()> {
    let failed = |what: &str, error: std::io::Error| {
        Error::io(format!("it can't be {what}: {error}"))
            .in_file(path.to_text())
            .advice("The files before it are done; nothing else was changed.")
    };
    if delete {
        // Links in a folder are removed, not followed.
        let removed = if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        return removed.map_err(|error| failed("deleted", error));
    }
    let trash = folder.join(TRASH);
    fs::create_dir_all(&trash).map_err(|error| failed("moved to the trash", error))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let target = free_name(&trash, &name);
    fs::rename(path, target).map_err(|error| failed("moved to the trash", error))
}

/// Returns an unused name in the trash.
fn free_name(trash: &Path, name: &str) -> PathBuf {
    let mut target = trash.join(name);
    let mut count = 1u64;
    while fs::symlink_metadata(&target).is_ok() {
        target = trash.join(format!("{name}.{count}"));
        count += 1;
    }
    target
}

fn show(
    args: &Prune,
    removed: &[&str],
    freed: u64,
    stay: u64,
    printer: &mut Printer,
) -> Result<(), Failure> {
    let word = match (args.apply, args.delete) {
        (false, _) => "would remove",
        (true, false) => "moved",
        (true, true) => "deleted",
    };
    for name in removed {
        printer.line(&format!("{word}  {}", visible(name)))?;
    }
    let trash = args.folder.folder.join(TRASH);
    let end = match (args.apply, args.delete, removed.is_empty()) {
        (_, _, true) => "nothing to remove".to_owned(),
        (false, ..) => format!("{} would be freed; remove them with --apply", size_text(freed)),
        (true, true, _) => format!("{} freed", size_text(freed)),
        (true, false, _) => {
            format!("{} moved to {}", size_text(freed), visible(&trash.to_text()))
        }
    };
    printer.line(&format!(
        "{} of {} remain; {end}",
        grouped(stay),
        counted(stay + removed.len() as u64, "checkpoint")
    ))
}

/// The result in JSON.
#[derive(Serialize)]
struct PruneFields<'a> {
    applied: bool,
    deleted: bool,
    files: &'a [&'a str],
    unsound: Vec<UnsoundFields<'a>>,
    bytes: u64,
    stay: u64,
    newer_by_time: &'a [String],
}

#[derive(Serialize)]
struct UnsoundFields<'a> {
    name: &'a str,
    why: &'a str,
}
