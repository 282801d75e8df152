//! One command for many checkpoints, divided into tasks.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use statelens::job::{Job, ManyRecipe, ManySource, TaskEnd};
use statelens::parallel;
use statelens::statistics::{TensorGroups, group_name};
use statelens_checkpoint::{Error, ErrorKind, Finding, Grade, Leaf, Result, separator};
use statelens_convert::{CastRule, read_as_rule};
use statelens_formats::ScanOptions;
use statelens_inspect::weights::TensorOutcome;
use statelens_inspect::{Json, ManifestWriter, findings_json, grade_word, statistics_json, worst};
use statelens_stats::{Scale, Summary};

use super::{checkpoints, ended, plan};
use crate::args::{By, JobMany, JobPlace};
use crate::commands::toolbox::verify;
use crate::commands::values::measure;
use crate::commands::{open, scan};
use crate::limits;
use crate::output::stop_signal;
use crate::print::{CommandResult, Failure, Printer, TextTable, counted, grouped, size_text};
use crate::progress::{Bar, Unit};
use crate::{remote, scratch};

/// Checkpoints of a task, unless the number of tasks is given.
const TASK: u64 = 10;
/// Bytes of memory of a task besides the structure of a checkpoint, an estimate.
const MEMORY: u64 = 400 << 20;
/// Bins of the histograms in the report.
const BINS: usize = 64;
/// Checkpoints that the report for people lists.
const LISTED: usize = 100;

/// Options of the command, as stored in the recipe.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct ManyOptions {
    finite: bool,
    allow: Vec<String>,
    by: Option<String>,
}

/// The result of a task.
#[derive(Debug, Default, Serialize, Deserialize)]
struct SliceResult {
    checkpoints: Vec<CheckpointResult>,
    groups: Vec<GroupResult>,
}

/// The result for one checkpoint.
#[derive(Debug, Serialize, Deserialize)]
struct CheckpointResult {
    path: String,
    /// Whether it passes; false if it could not be read.
    passes: bool,
    /// A word for people.
    verdict: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    code: Option<String>,
    /// What the command prints with `--json`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    report: Option<Box<RawValue>>,
}

/// The statistics of a group of tensors.
#[derive(Debug, Serialize, Deserialize)]
struct GroupResult {
    /// `None` for all tensors.
    group: Option<String>,
    tensors: u64,
    summary: Vec<u64>,
}

/// The report of all tasks.
#[derive(Debug, Serialize, Deserialize)]
struct ManyReport {
    statelens: u64,
    command: String,
    passed: u64,
    failed: u64,
    unread: u64,
    checkpoints: Vec<CheckpointResult>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    groups: Option<Box<RawValue>>,
}

pub(super) fn plan(args: &JobMany) -> CommandResult {
    let mut options = ManyOptions::default();
    let command = match args {
        JobMany::Verify { finite, .. } => {
            options.finite = *finite;
            "verify"
        }
        JobMany::Scan { allow, .. } => {
            options.allow.clone_from(allow);
            "scan"
        }
        JobMany::Stats { by, .. } => {
            options.by = by.map(|by| by.name().to_owned());
            "stats"
        }
        JobMany::Manifest { .. } => "manifest",
    };
    let many = args.many();
    let files = command == "scan";
    let checkpoints = checkpoints::named(&many.paths, many.from.as_deref(), files)?;
    let count = checkpoints.len() as u64;
    let largest = checkpoints.iter().filter_map(|one| one.bytes).max().unwrap_or(0);
    let bytes = checkpoints.iter().filter_map(|one| one.bytes).fold(0, u64::saturating_add);
    let recipe = ManyRecipe {
        command: command.to_owned(),
        checkpoints,
        options: serde_json::to_value(options).map_err(|error| broken(&error))?,
        reading: plan::reading(&many.spending, &[])?,
    };
    let tasks = many.place.tasks.unwrap_or_else(|| count.div_ceil(TASK));
    let place = plan::absolute(many.place.place())?;
    let memory = MEMORY.saturating_add(largest.min(1 << 30));
    let job = Job::plan_many(&place, recipe, tasks, memory)?;
    let mut printer = Printer::new();
    match many.json {
        true => printer.line(&plan::json(&job)?)?,
        false => {
            let checkpoints = counted(count, "checkpoint");
            printer.line(&format!("{command:<12} {checkpoints}, {}", size_text(bytes)))?;
            plan::summary(&job, many.place.place(), &mut printer)?;
        }
    }
    printer.finish()?;
    Ok(true)
}

/// Runs tasks.
pub(super) fn run(
    job: &Job,
    many: &ManyRecipe,
    tasks: Range<u64>,
    ended: &mut dyn FnMut(u64, TaskEnd) -> Result<()>,
) -> Result<()> {
    let options: ManyOptions =
        serde_json::from_value(many.options.clone()).map_err(|error| broken(&error))?;
    let reading = &many.reading;
    limits::set(reading.limits());
    if let Some(cap) = reading.max_fetch {
        remote::allow(cap);
    }
    if let Some(most) = reading.scratch {
        scratch::allow(most);
    }
    let rules: Vec<CastRule> =
        reading.read_as.iter().map(|text| read_as_rule(text)).collect::<Result<_>>()?;
    crate::commands::read_as(rules);
    let mut work = |slice: &[ManySource]| {
        let mut result = SliceResult::default();
        let mut groups = TensorGroups::new();
        for source in slice {
            let looked = look(&many.command, &options, source, &mut groups);
            let one = match looked {
                Ok(one) => one,
                // An interrupt is not an error of one checkpoint.
                Err(error) if error.kind() == ErrorKind::Cancelled => return Err(error),
                Err(error) => CheckpointResult {
                    path: source.path.display().to_string(),
                    passes: false,
                    verdict: "could not be read".to_owned(),
                    code: Some(error.code().to_owned()),
                    error: Some(limits::advise(error).to_string()),
                    report: None,
                },
            };
            result.checkpoints.push(one);
        }
        if many.command == "stats" {
            let mut names = groups.all.iter().enumerate();
            result.groups = names
                .by_ref()
                .map(|(at, group)| GroupResult {
                    group: (at > 0).then(|| group.name.clone()),
                    tensors: group.tensors,
                    summary: group.summary.encoded(),
                })
                .collect();
        }
        serde_json::value::to_raw_value(&result).map_err(|error| broken(&error))
    };
    job.run_many(tasks, &mut work, ended)
}

/// Runs the command on one checkpoint.
fn look(
    command: &str,
    options: &ManyOptions,
    source: &ManySource,
    groups: &mut TensorGroups,
) -> Result<CheckpointResult> {
    let path = source.path.as_path();
    check_unchanged(source)?;
    let (passes, verdict, report) = match command {
        "verify" => {
            let (report, _) = verify::verify_file(path, &[], None)?;
            let answer = report.answer(options.finite);
            (answer, report.verdict(options.finite), report.json(answer))
        }
        "scan" => scanned(path, options)?,
        "stats" => {
            let report = statistics(path, options, groups)?;
            (true, "read".to_owned(), report)
        }
        "manifest" => {
            let (checkpoint, _) = open(path, &[])?;
            limits::check(&checkpoint, "hashing all values")?;
            let mut text = String::new();
            let mut out = |piece: &str| {
                text.push_str(piece);
                Ok(())
            };
            let leaves = checkpoint.leaves();
            let mut bar = Bar::new("hashing", Unit::Bytes).stopped_by(stop_signal()?);
            let mut writer = ManifestWriter::json(&checkpoint, &leaves, &mut out);
            parallel::drive(&mut writer, remote::workers(&[path]), &mut bar)?;
            let unread = writer.finish()?;
            let verdict = match unread.len() {
                0 => "complete".to_owned(),
                count => format!("{} can't be read", counted(count as u64, "key")),
            };
            (unread.is_empty(), verdict, text)
        }
        other => return Err(Error::refused(format!("there is no command {other} for jobs"))),
    };
    let report = RawValue::from_string(report.trim().to_owned()).map_err(|error| broken(&error))?;
    let (path, report) = (path.display().to_string(), Some(report));
    Ok(CheckpointResult { path, passes, verdict, error: None, code: None, report })
}

/// Fails if a file on disk is not as it was when the job was planned.
fn check_unchanged(source: &ManySource) -> Result<()> {
    if remote::address(&source.path).is_some() {
        return Ok(());
    }
    let now = checkpoints::state(&source.path)?;
    match source.bytes.is_none() || now == *source {
        true => Ok(()),
        false => Err(Error::refused("the file has changed since the job was planned")
            .in_file(source.path.display().to_string())
            .coded("source-changed")),
    }
}

fn scanned(path: &Path, options: &ManyOptions) -> Result<(bool, String, String)> {
    let allow = ScanOptions { allow: options.allow.iter().cloned().collect() };
    let mut bar = Bar::new("scanning", Unit::Bytes).stopped_by(stop_signal()?);
    let findings: Vec<Finding> = scan::scan_file(path, &[], &allow, &mut bar)?;
    let worst = worst(&findings);
    let verdict = worst.map_or("nothing to report", grade_word).to_owned();
    let name = path.display().to_string();
    let report = findings_json(Some(&name), &findings);
    Ok((worst <= Some(Grade::Warning), verdict, report))
}

/// Returns the statistics of one checkpoint as JSON, and adds them to those of all.
fn statistics(path: &Path, options: &ManyOptions, groups: &mut TensorGroups) -> Result<String> {
    let (checkpoint, _) = open(path, &[])?;
    let checkpoint = Arc::new(checkpoint);
    let by = options.by.as_deref().map(By::named).transpose()?.map(Into::into);
    let leaves = checkpoint.leaves();
    let texts: Vec<_> = leaves.iter().map(|leaf| leaf.flat.to_lossy()).collect();
    let dot = separator(checkpoint.format.id, &mut texts.iter().map(|text| &**text));
    let mut firsts = std::collections::HashMap::new();
    for leaf in &leaves {
        if let Some((id, _)) = checkpoint.tensor_of(leaf.target) {
            firsts.entry(id).or_insert(leaf);
        }
    }
    let (mut own, mut failed) = (TensorGroups::new(), Vec::new());
    measure::each(path, &checkpoint, &leaves, |id, found| {
        let Some(leaf): Option<&&Leaf> = firsts.get(&id) else { return Ok(()) };
        match found {
            TensorOutcome::Read(summary) => {
                own.add_to_all(1, &summary);
                if let Some(by) = by {
                    own.add(&group_name(by, &checkpoint, leaf, dot), 1, &summary);
                }
            }
            TensorOutcome::Unread(why) => failed.push((leaf.flat.to_lossy().into_owned(), why)),
            _ => {}
        }
        Ok(())
    })?;
    if let Some((key, why)) = failed.first() {
        return Err(Error::damaged(format!("`{key}` can't be read: {why}"))
            .in_file(path.display().to_string()));
    }
    let mut json = Json::new();
    json.object(|json| {
        json.name("statelens").number(1);
        json.name("groups").array(|json| groups_json(&own, json));
    });
    // Last, so that a checkpoint that can't be read adds nothing.
    for (at, group) in own.all.iter().enumerate() {
        match at {
            0 => groups.add_to_all(group.tensors, &group.summary),
            _ => groups.add(&group.name, group.tensors, &group.summary),
        }
    }
    Ok(json.take())
}

fn groups_json(groups: &TensorGroups, json: &mut Json) {
    for group in &groups.all {
        let of = group.summary.statistics();
        let histogram = group.summary.histogram(Scale::Linear, BINS);
        json.object(|json| {
            json.name("group").str(&group.name);
            json.name("tensors").number(group.tensors);
            statistics_json(json, &of, &histogram, None);
        });
    }
}

pub(super) fn commit(job: &Job, many: &ManyRecipe, args: &JobPlace) -> CommandResult {
    let report = match job.committed().and_then(|known| match known {
        Some(known) => serde_json::from_str(known.get()).map_err(|error| broken(&error)),
        None => merged(job, many),
    }) {
        Ok(report) => report,
        Err(error) => return ended(error),
    };
    if let Err(error) = job.commit_with(&report) {
        return ended(error);
    }
    let mut printer = Printer::for_verdict();
    match args.json {
        true => {
            let text = serde_json::to_string(&report).map_err(|error| broken(&error))?;
            printer.line(&text)?;
        }
        false => show(&report, &mut printer)?,
    }
    printer.finish()?;
    Ok(report.failed == 0 && report.unread == 0)
}

/// Combines the results of all tasks.
fn merged(job: &Job, many: &ManyRecipe) -> Result<ManyReport> {
    let mut report = ManyReport {
        statelens: 1,
        command: many.command.clone(),
        passed: 0,
        failed: 0,
        unread: 0,
        checkpoints: Vec::new(),
        groups: None,
    };
    let mut groups = TensorGroups::new();
    job.each_result(&mut |result| {
        let slice: SliceResult =
            serde_json::from_str(result.get()).map_err(|error| broken(&error))?;
        for one in slice.checkpoints {
            let count = match (&one.error, one.passes) {
                (Some(_), _) => &mut report.unread,
                (None, true) => &mut report.passed,
                (None, false) => &mut report.failed,
            };
            *count += 1;
            report.checkpoints.push(one);
        }
        for GroupResult { group, tensors, summary } in slice.groups {
            let summary = Summary::decoded(&summary)
                .ok_or_else(|| Error::damaged("the statistics of a task can't be read"))?;
            match group {
                None => groups.add_to_all(tensors, &summary),
                Some(name) => groups.add(&name, tensors, &summary),
            }
        }
        Ok(())
    })?;
    let expected = many.checkpoints.iter().map(|one| one.path.display().to_string());
    if !expected.eq(report.checkpoints.iter().map(|one| one.path.clone())) {
        return Err(Error::damaged("the results are not those of the job's checkpoints"));
    }
    if many.command == "stats" {
        let mut json = Json::new();
        json.array(|json| groups_json(&groups, json));
        let text = RawValue::from_string(json.take()).map_err(|error| broken(&error))?;
        report.groups = Some(text);
    }
    Ok(report)
}

fn show(report: &ManyReport, printer: &mut Printer) -> std::result::Result<(), Failure> {
    let bad: Vec<&CheckpointResult> = report.checkpoints.iter().filter(|one| !one.passes).collect();
    if !bad.is_empty() {
        let mut table = TextTable::new(&["checkpoint", "result"]);
        for one in bad.iter().take(LISTED) {
            let why = one.error.clone().unwrap_or_else(|| one.verdict.clone());
            table.row(vec![one.path.clone(), why]);
        }
        table.print(printer)?;
    }
    if bad.len() > LISTED {
        let more = grouped((bad.len() - LISTED) as u64);
        printer.line(&format!("{more} more: --json lists them"))?;
    }
    let total = counted(report.checkpoints.len() as u64, "checkpoint");
    printer.line(&format!(
        "{total}: {} passed, {} did not, {} could not be read",
        grouped(report.passed),
        grouped(report.failed),
        grouped(report.unread)
    ))
}

fn broken(error: &serde_json::Error) -> Error {
    Error::damaged(format!("this is not what a job writes: {error}"))
}
