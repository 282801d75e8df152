//! One command for many checkpoints: the work of a task, and the report of all tasks.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use statelens_checkpoint::{
    Error, ErrorKind, Grade, Progress, Result, Setting, advice, counted, separator,
};
use statelens_describe::grade_word;
use statelens_formats::ScanOptions;
use statelens_values::json::json_text;
use statelens_values::weights::TensorOutcome;
use statelens_values::{Scale, Summary, fields, findings_json, report_json, worst};

use super::listing::state;
use super::reading::JobOpener;
use super::recipe::{ManyCommand, ManyRecipe, ManySource};
use crate::checkpoint::ManifestForm;
use crate::files::PathText as _;
use crate::statistics::{Grouping, TensorGroups, drive, first_read, group_name};
use crate::{Checkpoint, remote};

/// Bins of the histograms in the report.
const BINS: usize = 64;

/// The result of a task.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ManyResult {
    checkpoints: Vec<CheckpointResult>,
    groups: Vec<GroupResult>,
}

impl ManyResult {
    /// Fails unless the results are those of `sources`.
    pub(crate) fn check(&self, sources: &[ManySource]) -> Result<()> {
        let is_of = |(one, source): (&CheckpointResult, &ManySource)| {
            one.path == source.path.to_text() && one.bytes == source.bytes
        };
        match self.checkpoints.len() == sources.len()
            && self.checkpoints.iter().zip(sources).all(is_of)
        {
            true => Ok(()),
            false => Err(Error::damaged("this is the result of other checkpoints")
                .advice("Remove it, and run the task again.")),
        }
    }
}

/// The result for one of many checkpoints.
#[derive(Debug, Serialize, Deserialize)]
pub struct CheckpointResult {
    /// Its path or address.
    pub path: String,
    /// Its length in bytes, if it was known when the job was planned.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes: Option<u64>,
    /// Whether it passes; false if it could not be read.
    pub passes: bool,
    /// A word for people.
    pub verdict: String,
    /// The reason why it could not be read.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    /// The code of that error.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub code: Option<String>,
    /// What the command prints with `--json`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub report: Option<Box<RawValue>>,
}

/// The statistics of a group of tensors.
#[derive(Debug, Serialize, Deserialize)]
struct GroupResult {
    /// `None` for all tensors.
    group: Option<String>,
    tensors: u64,
    summary: Vec<u64>,
}

/// The report on many checkpoints.
#[derive(Debug, Serialize, Deserialize)]
pub struct ManyReport {
    /// Version of this structure: 1.
    pub statelens: u64,
    /// The command.
    pub command: String,
    /// Number of checkpoints that passed.
    pub passed: u64,
    /// Number of checkpoints that did not pass.
    pub failed: u64,
    /// Number of checkpoints that could not be read.
    pub unread: u64,
    /// The results, in the order of the job.
    pub checkpoints: Vec<CheckpointResult>,
    /// The statistics of all checkpoints together, by group of tensors.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub groups: Option<Box<RawValue>>,
}

impl ManyReport {
    /// Returns the report as JSON.
    pub fn json(&self) -> Result<String> {
        serde_json::to_string(self)
            .map_err(|error| Error::unsupported(format!("it can't be written as JSON: {error}")))
    }

    /// Returns whether all checkpoints pass.
    pub fn passes(&self) -> bool {
        self.failed == 0 && self.unread == 0
    }
}

/// The outcome of a command for a checkpoint that can be read.
struct CommandOutcome {
    passes: bool,
    verdict: String,
    report: String,
}

/// Runs the command on the checkpoints of a task.
pub(crate) fn run(
    recipe: &ManyRecipe,
    opener: &JobOpener,
    sources: &[ManySource],
    progress: &mut dyn Progress,
) -> Result<ManyResult> {
    let command = &recipe.command;
    let all = recipe.checkpoints.iter().map(|source| source.path.as_path()).collect();
    let mut result = ManyResult::default();
    let mut groups = TensorGroups::new();
    for source in sources {
        let (path, bytes) = (source.path.to_text(), source.bytes);
        let outcome = check_unchanged(source)
            .and_then(|()| outcome(command, opener, (&source.path, &all), &mut groups, progress))
            .and_then(|outcome| check_unchanged(source).map(|()| outcome));
        result.checkpoints.push(match outcome {
            Ok(CommandOutcome { passes, verdict, report }) => {
                let report = Some(raw(report)?);
                CheckpointResult { path, bytes, passes, verdict, error: None, code: None, report }
            }
            // An interrupt is not an error of one checkpoint.
            Err(error) if error.kind() == ErrorKind::Cancelled => return Err(error),
            Err(error) => CheckpointResult {
                path,
                bytes,
                passes: false,
                verdict: "could not be read".to_owned(),
                code: Some(error.code().to_owned()),
                error: Some(advised(error).to_string()),
                report: None,
            },
        });
    }
    if let ManyCommand::Stats { .. } = command {
        let result_of = |(at, group): (usize, &crate::statistics::TensorGroup)| GroupResult {
            group: (at > 0).then(|| group.name.clone()),
            tensors: group.tensors,
            summary: group.summary.encoded(),
        };
        result.groups = groups.all.iter().enumerate().map(result_of).collect();
    }
    Ok(result)
}

/// Combines the results of all tasks, in their order.
pub(crate) fn merged(
    command: &ManyCommand,
    sources: &[ManySource],
    results: impl Iterator<Item = Result<ManyResult>>,
) -> Result<ManyReport> {
    let mut report = ManyReport {
        statelens: 1,
        command: command.name().to_owned(),
        passed: 0,
        failed: 0,
        unread: 0,
        checkpoints: Vec::new(),
        groups: None,
    };
    let mut groups = TensorGroups::new();
    for result in results {
        let result = result?;
        for one in result.checkpoints {
            let count = match (&one.error, one.passes) {
                (Some(_), _) => &mut report.unread,
                (None, true) => &mut report.passed,
                (None, false) => &mut report.failed,
            };
            *count += 1;
            report.checkpoints.push(one);
        }
        for GroupResult { group, tensors, summary } in result.groups {
            let summary = Summary::decoded(&summary)
                .ok_or_else(|| Error::damaged("the statistics of a task can't be read"))?;
            match group {
                None => groups.add_to_all(tensors, &summary),
                Some(name) => groups.add(&name, tensors, &summary),
            }
        }
    }
    let expected = sources.iter().map(|one| one.path.to_text());
    if !expected.eq(report.checkpoints.iter().map(|one| one.path.clone())) {
        return Err(Error::damaged("the results are not those of the job's checkpoints"));
    }
    if let ManyCommand::Stats { .. } = command {
        report.groups = Some(raw(json_text(&group_fields(&groups)))?);
    }
    Ok(report)
}

/// Runs the command on one checkpoint, of `all` that the job has.
fn outcome(
    command: &ManyCommand,
    opener: &JobOpener,
    (path, all): (&Path, &HashSet<&Path>),
    groups: &mut TensorGroups,
    progress: &mut dyn Progress,
) -> Result<CommandOutcome> {
    match command {
        ManyCommand::Verify { finite } => {
            let report = Checkpoint::verify_opened(opener.open(path, progress), None, progress)?;
            let passes = report.answer(*finite);
            let verdict = report.verdict(*finite);
            Ok(CommandOutcome { passes, verdict, report: report.json(passes) })
        }
        ManyCommand::Scan { allow } => {
            let options = ScanOptions { allow: allow.iter().cloned().collect() };
            let findings = opener.sources.scan(path, all, &options, progress)?;
            let worst = worst(&findings);
            Ok(CommandOutcome {
                passes: worst <= Some(Grade::Warning),
                verdict: worst.map_or("nothing to report", grade_word).to_owned(),
                report: findings_json(Some(&path.to_text()), &findings),
            })
        }
        ManyCommand::Stats { by } => {
            let checkpoint = opener.open(path, progress)?;
            checkpoint.check_size("reading all values")?;
            let own = statistics(&checkpoint, *by, progress)
                .map_err(|error| error.in_file(path.to_text()))?;
            checkpoint.unchanged()?;
            let report = report_json(&fields! { groups: group_fields(&own) });
            // Last, so that a checkpoint that can't be read adds nothing.
            for (at, group) in own.all.iter().enumerate() {
                match at {
                    0 => groups.add_to_all(group.tensors, &group.summary),
                    _ => groups.add(&group.name, group.tensors, &group.summary),
                }
            }
            let verdict = "read".to_owned();
            Ok(CommandOutcome { passes: true, verdict, report })
        }
        ManyCommand::Manifest {} => {
            let checkpoint = opener.open(path, progress)?;
            let mut report = String::new();
            let mut out = |piece: &str| {
                report.push_str(piece);
                Ok(())
            };
            let unread = checkpoint.manifest(ManifestForm::Json, &mut out, progress)?;
            let damage = checkpoint.damage().next();
            let verdict = match (unread.len(), damage) {
                (0, None) => "complete".to_owned(),
                (0, Some(damage)) => format!("damaged: {}", damage.title),
                (count, _) => format!("{} can't be read", counted(count as u64, "key")),
            };
            let passes = unread.is_empty() && damage.is_none();
            Ok(CommandOutcome { passes, verdict, report })
        }
    }
}

/// Returns the statistics of one checkpoint, of all tensors and of groups of them.
fn statistics(
    checkpoint: &Checkpoint,
    by: Option<Grouping>,
    progress: &mut dyn Progress,
) -> Result<TensorGroups> {
    let core = checkpoint.inner();
    let leaves = core.leaves();
    let texts: Vec<_> = leaves.iter().map(|leaf| leaf.flat.to_lossy()).collect();
    let dot = separator(core.format.traits.slash_keys, &mut texts.iter().map(|text| &**text));
    let mut firsts = HashMap::new();
    for leaf in &leaves {
        if let Some((id, _)) = core.tensor_of(leaf.target) {
            firsts.entry(id).or_insert(leaf);
        }
    }
    let mut own = TensorGroups::new();
    drive(first_read(core, &leaves), checkpoint.workers(), progress, &mut |id, found| {
        let Some(leaf) = firsts.get(&id) else { return Ok(()) };
        match found {
            TensorOutcome::Read(summary) => {
                own.add_to_all(1, &summary);
                if let Some(by) = by {
                    own.add(&group_name(by, core, leaf, dot), 1, &summary);
                }
                Ok(())
            }
            TensorOutcome::Unread(why) => {
                let key = leaf.flat.to_lossy();
                Err(Error::damaged(format!("`{key}` can't be read: {why}")))
            }
            _ => Ok(()),
        }
    })?;
    Ok(own)
}

/// Returns groups as in JSON.
fn group_fields(groups: &TensorGroups) -> impl Serialize {
    groups.all.iter().map(|group| group.fields(Scale::Linear, BINS)).collect::<Vec<_>>()
}

/// Fails if a file on disk is not as it was when the job was planned.
fn check_unchanged(source: &ManySource) -> Result<()> {
    if remote::address(&source.path).is_some() || source.bytes.is_none() {
        return Ok(());
    }
    match state(&source.path)? == *source {
        true => Ok(()),
        false => Err(Error::refused("the file has changed since the job was planned")
            .in_file(source.path.to_text())
            .coded("source-changed")),
    }
}

/// Adds advice about limits, which are set when a job is planned.
fn advised(error: Error) -> Error {
    if error.kind() != ErrorKind::Limit || error.next_step().is_some() {
        return error;
    }
    error.advice(advice![
        "If you trust the file, plan the job again with ",
        Setting::Limit10,
        ", or with ",
        Setting::LimitNone,
        "."
    ])
}

fn raw(json: String) -> Result<Box<RawValue>> {
    RawValue::from_string(json.trim().to_owned())
        .map_err(|error| Error::damaged(format!("a report is not JSON: {error}")))
}
