//! `statelens prune`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use statelens_checkpoint::{Error, Result};
use statelens_inspect::{Json, visible};

use crate::args::Prune;
use crate::output::stop_signal;
use crate::print::{Failure, Outcome, Printer, grouped, size_text};

/// Where files go that are not deleted for good, in the run folder.
const TRASH: &str = "statelens-trash";

pub(crate) fn run(args: &Prune) -> Outcome {
    let run = super::runs::read(&args.folder)?;
    let keep = usize::try_from(args.keep).unwrap_or(usize::MAX);
    let folder = &args.folder.folder;
    let mut printer = Printer::new();
    let mut freed = 0u64;
    let mut gone = Vec::new();
    let stop = if args.apply { Some(stop_signal()?) } else { None };
    let all = run.prunable(keep, args.every);
    for entry in &all {
        // Between two files: each is in its place or in the trash.
        if stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Err(stopped(args, gone.len(), all.len()).into());
        }
        let path = folder.join(&entry.name);
        // A link is only a name: what it leads to lies elsewhere.
        if !fs::symlink_metadata(&path).is_ok_and(|data| data.is_file()) {
            continue;
        }
        if args.apply {
            remove(folder, &path, &entry.name, args.delete)?;
        }
        freed = freed.saturating_add(entry.bytes);
        gone.push(entry.name.as_str());
    }
    let stay = (run.checkpoints().count() - gone.len()) as u64;
    match args.json {
        true => printer.line(&json(args, &gone, freed, stay))?,
        false => show(args, &gone, freed, stay, &mut printer)?,
    }
    printer.finish()?;
    Ok(true)
}

/// What is said when it is stopped midway.
fn stopped(args: &Prune, done: usize, all: usize) -> Error {
    let (done, all) = (grouped(done as u64), grouped(all as u64));
    let word = if args.delete { "deleted" } else { "moved to the trash" };
    Error::io(format!("stopped when {done} of {all} files were {word}"))
        .in_file(args.folder.folder.display().to_string())
        .advice("The others are where they were; the same command goes on.")
}

fn remove(folder: &Path, path: &Path, name: &str, delete: bool) -> Result<()> {
    let failed = |what: &str, error: std::io::Error| {
        Error::io(format!("it can't be {what}: {error}"))
            .in_file(path.display().to_string())
            .advice("Those before it are done; nothing else was touched.")
    };
    if delete {
        return fs::remove_file(path).map_err(|error| failed("deleted", error));
    }
    let trash = folder.join(TRASH);
    fs::create_dir_all(&trash).map_err(|error| failed("moved to the trash", error))?;
    let target = free_name(&trash, name);
    fs::rename(path, target).map_err(|error| failed("moved to the trash", error))
}

/// A name in the trash that nothing has yet.
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
    gone: &[&str],
    freed: u64,
    stay: u64,
    printer: &mut Printer,
) -> Result<(), Failure> {
    let word = match (args.apply, args.delete) {
        (false, _) => "would go",
        (true, false) => "moved",
        (true, true) => "deleted",
    };
    for name in gone {
        printer.line(&format!("{word}  {}", visible(name)))?;
    }
    let trash = args.folder.folder.join(TRASH);
    let end = match (args.apply, args.delete, gone.is_empty()) {
        (_, _, true) => "nothing is to go".to_owned(),
        (false, ..) => format!("{} would be freed; do it with --apply", size_text(freed)),
        (true, true, _) => format!("{} freed", size_text(freed)),
        (true, false, _) => {
            format!("{} moved to {}", size_text(freed), visible(&trash.display().to_string()))
        }
    };
    printer.line(&format!(
        "{} of {} checkpoints stay; {end}",
        grouped(stay),
        grouped(stay + gone.len() as u64)
    ))
}

fn json(args: &Prune, gone: &[&str], freed: u64, stay: u64) -> String {
    let mut json = Json::new();
    json.object(|json| {
        json.name("statelens").number(1);
        json.name("applied").bool(args.apply);
        json.name("deleted").bool(args.delete);
        json.name("files").array(|json| gone.iter().for_each(|name| json.str(name)));
        json.name("bytes").number(freed);
        json.name("stay").number(stay);
    });
    json.take()
}
