//! `statelens runs` and `statelens latest`.

mod values;

use std::path::Path;
use std::time::UNIX_EPOCH;
use std::{fs, io};

use statelens::PathText as _;
use statelens::parts::compare::runs::{
    FileEntry, INDEX, LATEST_FILES, MAX_LATEST, NamePattern, OpenCheck, RunContents, RunFile,
    folder_marks, is_checkpoint_folder, is_unfinished_folder, named_latest, parse_index,
};
use statelens::parts::describe::FileGrade;
use statelens::{Error, Progress as _, Result};

use crate::args::{Latest, RunFolderArgs, Runs};
use crate::limits::limits;
use crate::print::{CommandResult, Failure, Printer, TextTable, counted, grouped, size_text, warn};
use crate::progress::{Bar, Unit};
use crate::source::Neighbours;

/// Bytes of the longest index that is read.
const MAX_INDEX: u64 = 64 << 20;

/// Returns the folder with the checkpoints: the given one, or PyTorch Lightning's
/// `lightning_logs/version_0/checkpoints` in it.
pub(super) fn entered(args: &RunFolderArgs) -> RunFolderArgs {
    let mut args = args.clone();
    if read(&args).is_ok_and(|run| !run.entries.iter().any(FileEntry::is_loadable)) {
        let logs = args.folder.join("lightning_logs");
        let logs = if logs.is_dir() { &logs } else { &args.folder };
        let below = fs::read_dir(logs).into_iter().flatten().flatten();
        let versions: Vec<_> = below
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("version_"))
            .map(|entry| entry.path())
            .collect();
        let logs = match &versions[..] {
            [only] => only,
            _ => logs,
        };
        let inner = logs.join("checkpoints");
        if inner.is_dir() {
            args.folder = inner;
        }
    }
    args
}

/// Reads a run folder: the names of its files, and its index if there is one.
pub(super) fn read(args: &RunFolderArgs) -> Result<RunContents> {
    let pattern = NamePattern::parse(&args.name)?;
    let folder = args.folder.as_path();
    let failed = |error: io::Error| super::folder_error(&error, folder);
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // The file may have been deleted since.
        let Ok(metadata) = fs::metadata(entry.path()) else { continue };
        let name = entry.file_name().to_string_lossy().into_owned();
        if metadata.is_file() {
            files.push((name, metadata.len()));
        } else if metadata.is_dir()
            && (is_checkpoint_folder(&name)
                || is_unfinished_folder(&name)
                || folder_marks(&name).iter().any(|mark| entry.path().join(mark).exists()))
        {
            let from = files.len();
            below(&entry.path(), &name, &mut files);
            // An empty folder counts for the trainer, too: it remains from an interrupted save.
            if files.len() == from {
                files.push((format!("{name}/"), 0));
            }
        }
    }
    let latest = LATEST_FILES.iter().find_map(|name| {
        let path = folder.join(name);
        let short =
            fs::metadata(&path).is_ok_and(|data| data.is_file() && data.len() <= MAX_LATEST);
        named_latest(name, &fs::read_to_string(path).ok().filter(|_| short)?)
    });
    let time = |path: &str| {
        let modified = fs::metadata(folder.join(path)).ok()?.modified().ok()?;
        Some(modified.duration_since(UNIX_EPOCH).ok()?.as_secs())
    };
    Ok(RunContents::new(files, index(folder)?, &pattern).with_latest(latest).with_times(time))
}

/// Adds the files of a checkpoint that is a folder, with paths relative to the run folder. Folders
/// that can't be listed are left out.
fn below(folder: &Path, name: &str, files: &mut Vec<(String, u64)>) {
    let mut open = vec![(folder.to_owned(), name.to_owned(), 0)];
    let from = files.len();
    while let Some((folder, name, depth)) = open.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = format!("{name}/{}", entry.file_name().to_string_lossy());
            // Links to folders are not followed.
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && depth < DEEPEST => {
                    open.push((entry.path(), path, depth + 1));
                }
                Ok(kind) if !kind.is_dir() && files.len() - from < MAX_FILES => {
                    let metadata = fs::metadata(entry.path());
                    let metadata = metadata.ok().filter(fs::Metadata::is_file);
                    files.extend(metadata.map(|metadata| (path, metadata.len())));
                }
                _ => {}
            }
        }
    }
}

/// The depth to which a checkpoint's folder is read, and the number of files that are listed.
const DEEPEST: u32 = 4;
const MAX_FILES: usize = 10_000;

fn index(folder: &Path) -> Result<Option<Vec<String>>> {
    let path = folder.join(INDEX);
    let failed =
        |error: io::Error| Error::io(format!("it can't be read: {error}")).in_file(path.to_text());
    match fs::metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
        Ok(data) if !data.is_file() || data.len() > MAX_INDEX => {
            return Err(Error::refused("this is not a list of checkpoints").in_file(path.to_text()));
        }
        Ok(_) => {}
    }
    let text = fs::read_to_string(&path).map_err(failed)?;
    parse_index(&text).map(Some).map_err(|error| error.in_file(path.to_text()))
}

/// Opens the structure of one of the folder's files.
fn check_opens(files: &Neighbours, entry: &FileEntry) -> OpenCheck {
    let Some(name) = entry.opened() else {
        return OpenCheck::failed("no file in it holds weights");
    };
    OpenCheck::open(&files.opened_at(name), limits())
}

fn neighbours(folder: &Path, run: &RunContents) -> Neighbours {
    Neighbours::new(folder, run.entries.iter().flat_map(FileEntry::files))
}

/// Opens the structure of each of the entries that `which` picks, one after the other. Adds the
/// counts of NaN and infinite values that are kept in the folder.
pub(super) fn open_checkpoints(
    folder: &Path,
    run: &RunContents,
    bar: &mut Bar,
    which: impl Fn(&FileEntry) -> bool,
) -> Result<Vec<Option<OpenCheck>>> {
    let total = run.entries.iter().filter(|entry| which(entry)).count() as u64;
    let mut done = 0;
    let files = neighbours(folder, run);
    let one = |entry: &FileEntry| {
        if !which(entry) {
            return Ok(None);
        }
        bar.check(done, total)?;
        done += 1;
        Ok(Some(check_opens(&files, entry)))
    };
    let mut checks: Vec<_> = run.entries.iter().map(one).collect::<Result<_>>()?;
    values::recall(folder, run, &mut checks);
    Ok(checks)
}

pub(crate) fn latest(args: &Latest) -> CommandResult {
    let args = &Latest { folder: entered(&args.folder), ..*args };
    let run = read(&args.folder)?;
    let folder = &args.folder.folder;
    if args.sound {
        return latest_sound(args, &run);
    }
    let Some(name) = &run.latest else {
        let what = match &run.absent_latest {
            Some(name) => absent(name),
            None if run.indexed => format!("no checkpoint that {INDEX} lists is there"),
            None => format!(
                "no file is named like {}, nor is there a checkpoint of another trainer by its \
                 usual name. Give the names of the files with --name, e.g. \
                 'model_{{step}}.pt', or the folder that holds them",
                args.folder.name
            ),
        };
        warn(&format!("{}: {what}.", folder.to_text()));
        return Ok(false);
    };
    if let Some(why) = run.restarted() {
        warn(&format!("{}: {why}.", folder.to_text()));
    }
    let (why, check) = judge_latest(folder, &run, name);
    let grade = check.as_ref().and_then(OpenCheck::grade);
    let shown = folder.join(name);
    let shown = shown.to_text();
    if let Some(why) = why {
        let word =
            grade.filter(|grade| !grade.is_good()).map(|grade| format!("{}: ", grade.word()));
        warn(&format!(
            "{shown}: not sound: {}{why}. `statelens latest --sound` prints the newest one that is.",
            word.unwrap_or_default()
        ));
    } else if let (Some(grade), Some(check)) = (grade.filter(|grade| !grade.is_good()), &check) {
        warn(&format!("{shown}: {}: {}.", grade.word(), check.reason));
    }
    let mut printer = Printer::new();
    printer.line(&folder.join(name).to_string_lossy())?;
    printer.success()
}

/// Returns the words for a checkpoint that a file names and that is not there.
fn absent(name: &str) -> String {
    format!(
        "the trainer would load {}, which the folder names as the latest, but it is not there",
        statelens::parts::checkpoint::visible(name)
    )
}

/// Returns why the latest checkpoint is not sound, and the result of opening it. Opens only that one
/// and its predecessors, back to the first that opens: its states are those that the latest should
/// have.
fn judge_latest(
    folder: &Path,
    run: &RunContents,
    latest: &str,
) -> (Option<String>, Option<OpenCheck>) {
    let mut checks: Vec<Option<OpenCheck>> = vec![None; run.entries.len()];
    let files = neighbours(folder, run);
    let Some(at) = run.entries.iter().position(|entry| entry.name == latest) else {
        return (None, None);
    };
    for (at, entry) in run.entries.iter().enumerate().take(at + 1).rev() {
        let found = check_opens(&files, entry);
        let done = found.wrong.is_empty() && entry.name != latest;
        checks[at] = Some(found);
        if done
            || checks[at].as_ref().is_some_and(|it| entry.name == latest && !it.wrong.is_empty())
        {
            break;
        }
    }
    values::recall(folder, run, &mut checks);
    (run.unsound(&checks).swap_remove(at), checks.swap_remove(at))
}

/// Prints the newest checkpoint that is sound.
fn latest_sound(args: &Latest, run: &RunContents) -> CommandResult {
    let folder = &args.folder.folder;
    let mut bar = Bar::new("opening", Unit::Files);
    let checks = open_checkpoints(folder, run, &mut bar, FileEntry::is_loadable)?;
    drop(bar);
    let unsound = run.unsound(&checks);
    let Some(found) = run.latest_sound(&unsound) else {
        warn(&format!("{}: no checkpoint here is sound.", folder.to_text()));
        return Ok(false);
    };
    let newer = run.entries.iter().zip(&unsound).rev().take_while(|(entry, _)| *entry != found);
    for (entry, why) in newer {
        if let Some(why) = why {
            warn(&format!("skipped: {}: {why}.", entry.name));
        }
    }
    let mut printer = Printer::new();
    printer.line(&folder.join(&found.name).to_string_lossy())?;
    printer.success()
}

pub(crate) fn run(args: &Runs) -> CommandResult {
    let args = &Runs { folder: entered(&args.folder), ..args.clone() };
    let run = read(&args.folder)?;
    let mut bar = Bar::new("opening", Unit::Files);
    let which = |entry: &FileEntry| entry.holds_states() && !args.quick;
    let checks = open_checkpoints(&args.folder.folder, &run, &mut bar, which)?;
    drop(bar);
    let unsound = run.unsound(&checks);
    let best = run.best(&checks);
    let wrong = |at: usize| match (&checks[at], &unsound[at]) {
        // The table of values has columns for these.
        (Some(check), _) if args.values && check.not_finite > Some(0) => check.wrong.clone(),
        (Some(_), Some(why)) => why.clone(),
        (Some(check), None) => check.wrong.clone(),
        (None, _) => String::new(),
    };
    let wrong: Vec<String> = (0..run.entries.len()).map(wrong).collect();
    if args.values {
        return values::run(args, &run, &wrong);
    }
    let grades = run.grades(&checks);
    let mut printer = Printer::new();
    match args.json {
        true => printer.line(&run.json(wrong.iter().map(String::as_str).zip(grades)))?,
        false => show(&run, &wrong, &grades, &best, &mut printer)?,
    }
    printer.success()
}

fn show(
    run: &RunContents,
    wrong: &[String],
    grades: &[Option<FileGrade>],
    best: &[String],
    printer: &mut Printer,
) -> Result<(), Failure> {
    let mut table = TextTable::new(&["file", "what", ">step", ">bytes", "grade", ""]);
    for ((entry, wrong), grade) in run.entries.iter().zip(wrong).zip(grades) {
        let step = match &entry.kind {
            RunFile::Checkpoint(name) => name.step.to_string(),
            _ => String::new(),
        };
        let mut notes = Vec::new();
        if run.latest.as_ref() == Some(&entry.name) {
            notes.push("latest".to_owned());
        }
        if best.contains(&entry.name) {
            notes.push("best".to_owned());
        }
        if run.newer_by_time.contains(&entry.name) {
            notes.push("newer by time".to_owned());
        }
        if run.only_folder.contains(&entry.name) {
            notes.push("not in the index".to_owned());
        }
        if let RunFile::Subset { states, of } = &entry.kind {
            notes.push(format!("{states} of {of}"));
        }
        if !wrong.is_empty() {
            notes.push(wrong.clone());
        }
        let name = entry.name.clone();
        let what = entry.kind.word().to_owned();
        let grade = match grade {
            Some(grade) => grade.word(),
            None if entry.holds_states() => "not checked",
            None => "",
        };
        table.row(vec![name, what, step, grouped(entry.bytes), grade.to_owned(), notes.join("; ")]);
    }
    table.print(printer)?;
    for path in &run.only_index {
        printer.line(&format!(
            "in the index, but not in the folder: {}",
            statelens::parts::checkpoint::visible(path)
        ))?;
    }
    if let Some(name) = &run.absent_latest {
        printer.line(&absent(name))?;
    }
    if let Some(why) = run.restarted() {
        printer.line(&why)?;
    }
    let checkpoints = run.checkpoints().count() as u64;
    let bytes = run.checkpoints().map(|entry| entry.bytes).fold(0, u64::saturating_add);
    printer.line(&format!(
        "{}, {}{}",
        counted(checkpoints, "checkpoint"),
        size_text(bytes),
        if run.indexed { "" } else { "; there is no index" }
    ))
}
