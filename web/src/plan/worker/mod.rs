//! Translates the page's options into a plan of the core.

pub mod casts;
pub mod preview;
pub mod summary;

use statelens_checkpoint::{Plan, Result};
use statelens_convert::{CastRule, EditTexts, OutputOptions};
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
    let (source, edit) = (open.checkpoint.clone(), texts(options).edit()?);
    let (plan, changes) =
        output(options).plan(source, &edit, Shards::One, &options.name, &open.limits)?;
    let mut planned = plan::worker::summary::describe(open, &plan, options, job)?;
    planned.preview = preview(changes);
    planned.command = command(open, options);
    Ok((plan.into(), planned))
}

/// Returns the edits of the options, as the command has them.
fn texts(options: &ConvertOptions) -> EditTexts {
    EditTexts {
        untie: options.untie,
        states: options.states.clone(),
        select: options.select.clone(),
        exclude: options.exclude.clone(),
        strip_prefix: options.strip_prefix.clone(),
        rename: options.rename.clone(),
        rename_list: None,
        prefix: options.prefix.clone(),
        nest: options.nest,
        cast: options.casts.iter().chain(&options.cast).cloned().collect(),
    }
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
    let mut words = vec!["convert".into(), open.source_name(), options.name.clone()];
    words.extend(open.read_as.dtypes().flat_map(|dtype| ["--read-as".into(), dtype.to_owned()]));
    words.extend(options.unstack.then(|| "--unstack".to_owned()));
    let dtype = options.dequantize.iter();
    words.extend(dtype.flat_map(|dtype| ["--dequantize".to_owned(), dtype.clone()]));
    words.extend(output(options).arguments());
    words.extend(texts(options).arguments());
    command_line(&words)
}
