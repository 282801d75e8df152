//! `statelens runs --values`.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::UNIX_EPOCH;

use serde_json::Value;
use statelens::parallel;
use statelens_checkpoint::{Error, ErrorKind, Result, Unwatched};
use statelens_inspect::runs::{
    FileEntry, GroupValues, Grouping, RunContents, RunFile, StepValues, TensorGroups,
    TimelineMeasure, group_names, over_steps, values_json,
};
use statelens_inspect::{Json, number_text};

use crate::args::Runs;
use crate::commands::pictures::save_bytes;
use crate::limits::{self, limits};
use crate::output::{Sync, check_target, stop_signal};
use crate::print::{CommandResult, Failure, Printer, TextTable, complain, grouped};
use crate::progress::{Bar, Unit};
use crate::scratch;
use crate::source::Neighbours;

/// Bytes of a tensor that are read as one part. Where parts begin changes no result.
const PIECE: u64 = 32 << 20;
/// The longest file of kept values that is read.
const LONGEST: u64 = 256 << 20;
/// Lines that a picture has at most, and its size.
const LINES: usize = 6;
const DOTS: (u32, u32) = (900, 420);

pub(super) fn run(args: &Runs, run: &RunContents, wrong: &[String]) -> CommandResult {
    let by = Grouping::from(args.by);
    if let Some(picture) = &args.picture {
        let is_svg = picture.extension().is_some_and(|end| end.eq_ignore_ascii_case("svg"));
        if !is_svg {
            let name = picture.display().to_string();
            return Err(Error::refused("lines are saved as .svg only").in_file(name).into());
        }
        check_target(picture, args.force, &[])?;
    }
    let patterns = super::super::patterns(&args.group)?;
    let kept = args.keep.as_deref().map(|path| kept(path, by)).transpose()?.unwrap_or_default();
    let mut steps = Vec::new();
    let ended = read(args, run, wrong, by, &kept, &mut steps);
    if let Some(path) = &args.keep {
        // What was read before it was stopped need not be read again.
        let mut json = Json::new();
        values_json(&mut json, by, &steps);
        save_bytes(json.as_str().as_bytes(), path, true, Sync::IfReplacing)?;
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
        let mut names = group_names(&steps);
        if names.len() > LINES {
            complain(&format!(
                "the picture has the first {LINES} of {} groups; choose them with --group",
                grouped(names.len() as u64)
            ));
            names.truncate(LINES);
        }
        let chart = over_steps(&steps, &names, TimelineMeasure::Norm);
        let svg = chart.svg(DOTS.0, DOTS.1);
        save_bytes(svg.as_bytes(), picture, args.force, Sync::IfReplacing)?;
    }
    Ok(true)
}

/// Reads the checkpoints one after the other.
fn read(
    args: &Runs,
    run: &RunContents,
    wrong: &[String],
    by: Grouping,
    kept: &HashMap<String, StepValues>,
    steps: &mut Vec<StepValues>,
) -> Result<()> {
    let folder = args.folder.folder.as_path();
    let files = super::neighbours(folder, run);
    let stop = stop_signal()?;
    for (entry, wrong) in run.entries.iter().zip(wrong) {
        let RunFile::Checkpoint(name) = &entry.kind else { continue };
        let mut step = StepValues {
            name: entry.name.clone(),
            step: name.step.to_string().parse().unwrap_or(u64::MAX),
            bytes: entry.bytes,
            modified: modified(&folder.join(&entry.name)),
            wrong: wrong.clone(),
            groups: Vec::new(),
        };
        let known = kept.get(&entry.name).filter(|known| {
            (known.bytes, &known.modified) == (step.bytes, &step.modified)
                && !step.modified.is_empty()
        });
        match known {
            Some(known) => step.groups.clone_from(&known.groups),
            // What can't be opened has no values.
            None => match values(&files, entry, by, &stop) {
                Ok((groups, why)) => {
                    step.groups = groups;
                    if step.wrong.is_empty() {
                        step.wrong = why;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Cancelled => return Err(error),
                Err(error) if step.wrong.is_empty() => step.wrong = error.what().to_owned(),
                Err(_) => {}
            },
        }
        steps.push(step);
    }
    Ok(())
}

fn values(
    files: &Neighbours,
    entry: &FileEntry,
    by: Grouping,
    stop: &Arc<AtomicBool>,
) -> Result<(Vec<GroupValues>, String)> {
    let files = files.opened_at(&entry.name).with_scratch(scratch::on_disk());
    let checkpoint = Arc::new(statelens_formats::open(files, limits(), &mut Unwatched)?);
    limits::check(&checkpoint, "reading all values")?;
    let leaves = checkpoint.leaves();
    let mut groups = TensorGroups::new(&checkpoint, &leaves, by);
    let mut survey = groups.survey(&checkpoint, &leaves, PIECE);
    let mut bar = Bar::new("reading", Unit::Bytes).stopped_by(stop.clone());
    parallel::drive_watched(&mut survey, parallel::cores(), &mut bar, |found| {
        groups.learn(&found.take());
        Ok(())
    })?;
    Ok(groups.finish())
}

/// When a file was changed, as text; empty if that is not known.
fn modified(path: &Path) -> String {
    let time = fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let since = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.map_or_else(String::new, |it| format!("{}.{:09}", it.as_secs(), it.subsec_nanos()))
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
            let finite = group.count > group.nan + group.infinite;
            let number = |value| if finite { number_text(value) } else { String::new() };
            table.row(vec![
                step.step.to_string(),
                group.name.clone(),
                grouped(group.tensors),
                number(group.norm),
                number(group.mean),
                number(group.std),
                grouped(group.nan),
                grouped(group.infinite),
                step.wrong.clone(),
                step.name.clone(),
            ]);
        }
    }
    table.print(printer)
}

/// What was kept, by the name of the file; nothing where there is no such file yet, or it has other
/// groups.
fn kept(path: &Path, by: Grouping) -> Result<HashMap<String, StepValues>> {
    let in_file = |error: Error| error.in_file(path.display().to_string());
    let other = || {
        in_file(Error::refused("this is not a file of kept values"))
            .advice("Name another one, or remove it.")
    };
    let length = match fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(HashMap::new()),
        Err(error) => return Err(in_file(Error::io(format!("it can't be read: {error}")))),
        Ok(metadata) if !metadata.is_file() => return Err(other()),
        Ok(metadata) => metadata.len(),
    };
    if length > LONGEST {
        return Err(other());
    }
    let text =
        fs::read(path).map_err(|error| in_file(Error::io(format!("it can't be read: {error}"))))?;
    let read: Value = serde_json::from_slice(&text).map_err(|_| other())?;
    let (Some(checkpoints), Some(grouping)) = (read["checkpoints"].as_array(), read["by"].as_str())
    else {
        return Err(other());
    };
    if grouping != by.word() {
        return Ok(HashMap::new());
    }
    let known = checkpoints.iter().filter_map(step).filter(|step| !step.groups.is_empty());
    Ok(known.map(|step| (step.name.clone(), step)).collect())
}

/// A checkpoint as it was kept, if all of it could be read then.
fn step(of: &Value) -> Option<StepValues> {
    let text = |name: &str| of[name].as_str().map(str::to_owned);
    let groups = of["groups"].as_array()?.iter().map(|group| {
        let count = |name: &str| group[name].as_u64();
        // What is infinite is text, what there is none of null.
        let number = |name: &str| match &group[name] {
            Value::String(text) => text.parse().unwrap_or(f64::NAN),
            value => value.as_f64().unwrap_or(0.0),
        };
        Some(GroupValues {
            name: group["group"].as_str()?.to_owned(),
            tensors: count("tensors")?,
            count: count("count")?,
            nan: count("nan")?,
            infinite: count("infinite")?,
            norm: number("norm"),
            mean: number("mean"),
            std: number("std"),
        })
    });
    let step = StepValues {
        name: text("name")?,
        step: of["step"].as_u64()?,
        bytes: of["bytes"].as_u64()?,
        modified: text("modified")?,
        wrong: text("wrong").unwrap_or_default(),
        groups: groups.collect::<Option<_>>()?,
    };
    Some(step).filter(|step| step.wrong.is_empty())
}
