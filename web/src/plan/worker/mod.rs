//! Translates the page's options into a plan of the core.

pub mod casts;
pub mod preview;
pub mod summary;

use statelens_checkpoint::{Plan, Result};
use statelens_convert::{CastRule, Edit, OutputOptions, Pattern, Rename};
use statelens_formats::Shards;

use crate::convert::message::{ConvertOptions, PlanSummary};
use crate::plan;
use crate::plan::worker::preview::preview;
use crate::worker::command_line::command_line;
use crate::worker::job::Job;
use crate::worker::opened::OpenCheckpoint;

/// Returns the id of the target that writes a checkpoint's format; the format's own id if it can't
/// be written.
pub fn target_of(format: &str) -> String {
    statelens_formats::writing_of(format).map_or(format, |writing| writing.id).into()
}

/// Everything that a conversion writes.
#[derive(Clone)]
pub struct PlannedOutput {
    /// The files.
    pub plan: Plan,
    /// Further files, each planned from another source.
    pub more: Vec<Plan>,
    /// Text files that belong to them: names and contents.
    pub texts: Vec<(String, String)>,
}

impl From<Plan> for PlannedOutput {
    fn from(plan: Plan) -> Self {
        Self { plan, more: Vec::new(), texts: Vec::new() }
    }
}

/// Plans a conversion.
///
/// # Errors
/// Errors of the core, such as a pattern that matches nothing or a value that the target can't
/// hold.
pub fn plan(
    open: &OpenCheckpoint,
    options: &ConvertOptions,
    job: &Job,
) -> Result<(PlannedOutput, PlanSummary)> {
    let (source, edit) = (open.checkpoint.clone(), edit(options)?);
    let (plan, changes) =
        output(options).plan(source, &edit, Shards::One, &options.name, &open.limits)?;
    let mut planned = plan::worker::summary::describe(open, &plan, options, job)?;
    planned.preview = preview(changes);
    planned.command = command(open, options);
    Ok((plan.into(), planned))
}

fn edit(options: &ConvertOptions) -> Result<Edit> {
    Ok(Edit {
        untie: options.untie,
        states: options.states.clone(),
        select: Pattern::all(&options.select)?,
        exclude: Pattern::all(&options.exclude)?,
        strip_prefix: options.strip_prefix.clone(),
        rename: Rename::all(&options.rename)?,
        prefix: options.prefix.clone(),
        nest: options.nest,
        casts: casts(options)?,
    })
}

/// Returns the requested casts: those by key first.
///
/// # Errors
/// Errors of the core.
pub(crate) fn casts(options: &ConvertOptions) -> Result<Vec<CastRule>> {
    CastRule::all(options.casts.iter().chain(&options.cast))
}

fn output(options: &ConvertOptions) -> OutputOptions {
    OutputOptions {
        to: options.to.clone(),
        version: options.version.clone(),
        compression: options.compress.clone(),
        object_graph: options.object_graph,
        state_file: options.state_file,
        shard_size: options.shard_size.clone(),
        shards: options.shard.clone().unwrap_or_default(),
    }
}

/// Returns the equivalent command, quoted for a shell.
fn command(open: &OpenCheckpoint, options: &ConvertOptions) -> String {
    let mut words = vec![
        "convert".into(),
        open.source_name(),
        options.name.clone(),
        "--to".into(),
        options.to.clone(),
    ];
    let mut add = |flag: &str, value: &str| words.extend([flag.to_owned(), value.to_owned()]);
    if !options.states.is_empty() {
        add("--states", &options.states.join(","));
    }
    options.select.iter().for_each(|pattern| add("--select", pattern));
    options.exclude.iter().for_each(|pattern| add("--exclude", pattern));
    if !options.strip_prefix.is_empty() {
        add("--strip-prefix", &options.strip_prefix);
    }
    options.rename.iter().for_each(|rule| add("--rename", rule));
    if !options.prefix.is_empty() {
        add("--prefix", &options.prefix);
    }
    open.read_as.dtypes().for_each(|dtype| add("--read-as", dtype));
    options.casts.iter().chain(&options.cast).for_each(|rule| add("--cast", rule));
    for (flag, value) in [
        ("--compress", &options.compress),
        ("--shard-size", &options.shard_size),
        ("--format-version", &options.version),
    ] {
        if let Some(value) = value {
            add(flag, value);
        }
    }
    options.shard.iter().flatten().for_each(|rule| words.extend(["--shard".into(), rule.clone()]));
    for (flag, on) in [
        ("--untie", options.untie),
        ("--nest", options.nest),
        ("--object-graph", options.object_graph),
        ("--state-file", options.state_file),
    ] {
        words.extend(on.then(|| flag.to_owned()));
    }
    command_line(&words)
}
