//! `statelens runs --values`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::UNIX_EPOCH;
use std::{fs, io};

use statelens::PathText as _;
use statelens::parts::checkpoint::Unwatched;
use statelens::parts::compare::runs::{
    FileEntry, GroupValues, Grouping, KEPT, KeptValues, MAX_KEPT, OpenCheck, RunContents, RunFile,
    StepValues, TensorGroups, TimelineMeasure, first_lines, group_names, over_steps, time_text,
    values_json,
};
use statelens::parts::convert::Pattern;
use statelens::parts::values::{Json, number_text};
use statelens::{Error, ErrorKind, Result, parallel};

use crate::args::Runs;
use crate::commands::pictures::save_bytes;
use crate::limits::{self, limits};
use crate::output::{Sync, check_target, stop_signal};
use crate::print::{CommandResult, Failure, Printer, TextTable, counted, grouped, warn};
use crate::progress::{Bar, Unit};
use crate::scratch;
use crate::source::Neighbours;

/// Bytes of a tensor that are read as one part. The division into parts changes no result.
const PIECE: u64 = 32 << 20;
/// The largest number of lines of a picture, and its width and height in pixels.
const LINES: usize = 6;
const DOTS: (u32, u32) = (900, 420);

pub(super) fn run(args: &Runs, run: &RunContents, wrong: &[String]) -> CommandResult {
    let by = Grouping::from(args.by);
    if let Some(picture) = &args.picture {
        let is_svg = picture.extension().is_some_and(|end| end.eq_ignore_ascii_case("svg"));
        if !is_svg {
            let name = picture.to_text();
            return Err(Error::refused("lines are saved as .svg only").in_file(name).into());
        }
        check_target(picture, args.force, &[])?;
    }
    let patterns = Pattern::all(&args.group)?;
    let (path, mut kept) = kept(args)?;
    let mut steps = listed(args, run, wrong);
    // The page does not use kept values of one grouping only, so keep its groupings too.
    let mut needed = vec![by];
    if args.keep.is_some() {
        needed.extend([Grouping::State, Grouping::Role].iter().filter(|other| **other != by));
    }
    report_kept(&steps, &kept, &needed, &path);
    let ended = read(args, run, &needed, &mut kept, &mut steps);
    if args.keep.is_some() {
        // Keep the values that were read before an interrupt.
        save_bytes(kept.json().as_bytes(), &path, true, Sync::IfReplacing)?;
    }
    ended?;
    for step in &mut steps {
        let wanted = |group: &GroupValues| {
            patterns.is_empty() || patterns.iter().any(|pattern| pattern.matches(&group.name))
        };
        step.groups.retain(wanted);
    }
    let mut printer = Printer::new();
    match args.json {
        true => {
            let mut json = Json::new();
            values_json(&mut json, by, &steps);
            printer.text(json.as_str())?;
        }
        false => show(&steps, &mut printer)?,
    }
    printer.finish()?;
    if let Some(picture) = &args.picture {
        let chart = over_steps(&steps, &drawn(&steps, &args.group), TimelineMeasure::Norm);
        let svg = chart.svg(DOTS.0, DOTS.1);
        save_bytes(svg.as_bytes(), picture, args.force, Sync::IfReplacing)?;
    }
    Ok(true)
}

/// Returns the groups to draw, and reports those that are left out.
fn drawn(steps: &[StepValues], chosen: &[String]) -> Vec<String> {
    let mut names = group_names(steps);
    if chosen.is_empty() {
        let first = first_lines(steps, LINES);
        if !first.single.is_empty() {
            let left = statelens::parts::checkpoint::listed(&first.single, 3);
            warn(&format!(
                "the picture leaves out single numbers, random states and counters: {left}; choose with --group"
            ));
        }
        names.retain(|name| !first.single.contains(name));
    }
    if names.len() > LINES {
        warn(&format!(
            "the picture has the first {LINES} of {} groups; choose them with --group",
            grouped(names.len() as u64)
        ));
        names.truncate(LINES);
    }
    names
}

/// Returns the checkpoints, without any values.
fn listed(args: &Runs, run: &RunContents, wrong: &[String]) -> Vec<StepValues> {
    let folder = args.folder.folder.as_path();
    let all = run.entries.iter().zip(wrong);
    let steps = all.filter_map(|(entry, wrong)| {
        Some(StepValues { wrong: wrong.clone(), ..step(folder, entry)? })
    });
    steps.collect()
}

/// Returns a checkpoint without values, for comparison with kept ones; `None` for other files.
fn step(folder: &Path, entry: &FileEntry) -> Option<StepValues> {
    let RunFile::Checkpoint(name) = &entry.kind else { return None };
    Some(StepValues {
        name: entry.name.clone(),
        step: name.step.to_string().parse().unwrap_or(u64::MAX),
        bytes: entry.bytes,
        modified: modified(&folder.join(entry.opened().unwrap_or(&entry.name))),
        wrong: String::new(),
        groups: Vec::new(),
    })
}

/// Adds to the results of opening how many values are NaN or infinite, for checkpoints whose values
/// are kept in the folder.
pub(super) fn recall(folder: &Path, run: &RunContents, checks: &mut [Option<OpenCheck>]) {
    // `runs --values` reports a file that can't be used.
    let Ok(kept) = read_kept(&folder.join(KEPT)) else { return };
    for (entry, check) in run.entries.iter().zip(checks) {
        if let (Some(check), Some(step)) = (check, step(folder, entry)) {
            check.not_finite = kept.not_finite(&step);
        }
    }
}

/// Reports how many checkpoints have kept values, and how many changed since.
fn report_kept(steps: &[StepValues], kept: &KeptValues, needed: &[Grouping], path: &Path) {
    let count = |is: &dyn Fn(&StepValues) -> bool| steps.iter().filter(|step| is(step)).count();
    let known = count(&|step| needed.iter().all(|by| kept.groups(*by, step).is_some()));
    let changed = count(&|step| needed.iter().any(|by| kept.is_changed(*by, step)));
    if known > 0 {
        let known = counted(known as u64, "checkpoint");
        warn(&format!("the values of {known} are from {}", path.to_text()));
    }
    if changed > 0 {
        let were = if changed == 1 { "was changed since its" } else { "were changed since their" };
        let changed = counted(changed as u64, "checkpoint");
        warn(&format!("{changed} {were} values were kept in {}", path.to_text()));
    }
}

/// Reads the checkpoints whose values were not kept, one after the other.
fn read(
    args: &Runs,
    run: &RunContents,
    needed: &[Grouping],
    kept: &mut KeptValues,
    steps: &mut [StepValues],
) -> Result<()> {
    let files = super::neighbours(args.folder.folder.as_path(), run);
    let stop = stop_signal()?;
    for step in steps {
        let known = needed.iter().map(|by| kept.groups(*by, step));
        if let Some(known) = known.collect::<Option<Vec<_>>>() {
            step.groups = known.first().map(|groups| groups.to_vec()).unwrap_or_default();
            continue;
        }
        // Skip entries that can't be opened.
        let entry = run.entries.iter().find(|entry| entry.name == step.name);
        let Some(opened) = entry.and_then(FileEntry::opened) else { continue };
        match values(&files, opened, needed, &stop) {
            Ok((all, why)) => {
                if step.wrong.is_empty() {
                    step.wrong = why;
                }
                // In reverse, so that the first grouping is the one that is shown.
                for (by, groups) in needed.iter().zip(all).rev() {
                    step.groups = groups;
                    kept.keep(*by, step.clone());
                }
            }
            Err(error) if error.kind() == ErrorKind::Cancelled => return Err(error),
            Err(error) if step.wrong.is_empty() => step.wrong = error.what().to_owned(),
            Err(_) => {}
        }
    }
    Ok(())
}

/// Returns the groups of a checkpoint for each grouping, and a description of any damage.
fn values(
    files: &Neighbours,
    name: &str,
    needed: &[Grouping],
    stop: &Arc<AtomicBool>,
) -> Result<(Vec<Vec<GroupValues>>, String)> {
    let files = files.opened_at(name).with_scratch(scratch::on_disk());
    let checkpoint = Arc::new(statelens::parts::formats::open(files, limits(), &mut Unwatched)?);
    limits::check(&checkpoint, "reading all values")?;
    let leaves = checkpoint.leaves();
    let of = |by: &Grouping| TensorGroups::new(&checkpoint, &leaves, *by);
    let mut all: Vec<TensorGroups> = needed.iter().map(of).collect();
    let Some(first) = all.first() else { return Ok((Vec::new(), String::new())) };
    let mut survey = first.survey(&checkpoint, &leaves, PIECE);
    let mut bar = Bar::new("reading", Unit::Bytes).stopped_by(stop.clone());
    parallel::drive_watched(&mut survey, parallel::cores(), &mut bar, |found| {
        let found = found.take();
        all.iter_mut().for_each(|groups| groups.learn(&found));
        Ok(())
    })?;
    let (groups, mut wrong): (Vec<_>, Vec<_>) = all.into_iter().map(TensorGroups::finish).unzip();
    Ok((groups, wrong.pop().unwrap_or_default()))
}

/// Returns the modification time of a file as text; empty if it is not known.
fn modified(path: &Path) -> String {
    let time = fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let since = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.map_or_else(String::new, |since| time_text(since, true))
}

fn show(steps: &[StepValues], printer: &mut Printer) -> Result<(), Failure> {
    let heads =
        [">step", "group", ">tensors", ">norm", ">mean", ">std", ">NaN", ">infinite", "", "file"];
    let mut table = TextTable::new(&heads);
    for step in steps {
        if step.groups.is_empty() {
            let mut row = vec![step.step.to_string()];
            row.extend(std::iter::repeat_n(String::new(), 7));
            row.extend([step.wrong.clone(), step.name.clone()]);
            table.row(row);
        }
        for group in &step.groups {
            let number = |value: Option<f64>| value.map_or_else(String::new, number_text);
            table.row(vec![
                step.step.to_string(),
                group.name.clone(),
                match group.missing {
                    0 => grouped(group.tensors),
                    missing => {
                        format!(
                            "{} of {}",
                            grouped(group.tensors),
                            grouped(group.tensors + missing)
                        )
                    }
                },
                number(group.norm),
                number(group.mean),
                number(group.std),
                grouped(group.nan),
                grouped(group.infinite),
                match step.is_partial() {
                    true => format!("incomplete: {}", step.partial_reason()),
                    false => step.wrong.clone(),
                },
                step.name.clone(),
            ]);
        }
    }
    table.print(printer)
}

/// Returns the file of kept values and its content, which is empty if it does not exist.
fn kept(args: &Runs) -> Result<(PathBuf, KeptValues)> {
    if let Some(Some(path)) = &args.keep {
        return Ok((path.clone(), read_kept(path)?));
    }
    let path = args.folder.folder.join(KEPT);
    let kept = read_kept(&path).unwrap_or_else(|error| {
        let then = if args.keep.is_some() { "it is replaced" } else { "it is not used" };
        warn(&format!("{}: {}: {then}", path.to_text(), error.what()));
        KeptValues::default()
    });
    Ok((path, kept))
}

fn read_kept(path: &Path) -> Result<KeptValues> {
    let in_file = |error: Error| error.in_file(path.to_text());
    let failed = |error: io::Error| in_file(Error::io(format!("it can't be read: {error}")));
    let other = |error: Error| in_file(error).advice("Name another one, or remove it.");
    let length = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(KeptValues::default()),
        Err(error) => return Err(failed(error)),
        Ok(metadata) if !metadata.is_file() => u64::MAX,
        Ok(metadata) => metadata.len(),
    };
    if length > MAX_KEPT {
        return Err(other(Error::refused("this is not a file of kept values")));
    }
    KeptValues::parse(&fs::read(path).map_err(failed)?).map_err(other)
}
