//! Conversions.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use statelens::PathText as _;
use statelens::executor::count;
use statelens::job::{EditTexts, JobOptions, Reading};
use statelens::parts::convert::{OutputOptions, read_as_rule};
use statelens::parts::formats::{writing_for_name, writing_of};
use statelens::report::PlannedPaths;
use statelens::write::{FileOptions, Replace, file_name, output_paths, replaced_shards};
use statelens::{Checkpoint, Error, Result};

use crate::errors::detached;
use crate::place::{Located, Place};
use crate::watch::Watch;

/// The options of a conversion.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct ConvertOptions {
    to: Option<String>,
    version: Option<String>,
    compression: Option<String>,
    shard_size: Option<String>,
    shards: Vec<(String, String)>,
    object_graph: bool,
    state_file: bool,
    select: Vec<String>,
    exclude: Vec<String>,
    states: Vec<String>,
    rename: Vec<(String, String)>,
    rename_map: Option<String>,
    strip_prefix: String,
    prefix: String,
    nest: bool,
    cast: Vec<(String, String)>,
    untie: bool,
    lossy: bool,
    replace: bool,
    sync: bool,
    read_as: Vec<String>,
}

impl ConvertOptions {
    /// Returns the options of a conversion of `source` to `path`. The format is that of the
    /// extension, unless another is requested.
    pub(crate) fn of_job(self, source: PathBuf, path: &Path) -> Result<JobOptions> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let by_name = || -> Result<String> {
            let writing = writing_for_name(&name).ok_or_else(|| {
                Error::refused("the extension is not that of a format")
                    .in_file(path.to_text())
                    .advice("Choose one with `to`.")
            })?;
            Ok(writing.id.to_owned())
        };
        let joined = |pairs: Vec<(String, String)>, by: &str| {
            pairs.into_iter().map(|(one, other)| format!("{one}{by}{other}")).collect()
        };
        Ok(JobOptions {
            source,
            destination: path.to_owned(),
            output: OutputOptions {
                to: self.to.map_or_else(by_name, |to| Ok(writer_of(to)))?,
                version: self.version,
                compression: self.compression,
                shard_size: self.shard_size,
                shards: joined(self.shards, "="),
                object_graph: self.object_graph,
                state_file: self.state_file,
            },
            edits: EditTexts {
                untie: self.untie,
                states: self.states,
                select: self.select,
                exclude: self.exclude,
                strip_prefix: self.strip_prefix,
                rename: joined(self.rename, "=>"),
                rename_list: self.rename_map,
                prefix: self.prefix,
                nest: self.nest,
                cast: joined(self.cast, "="),
            },
            lossy: self.lossy,
            replace: self.replace,
            reading: Reading { read_as: self.read_as, ..Reading::default() },
        })
    }
}

/// Returns the name of the writer for the id of a format, which `Checkpoint.format` has; other names
/// unchanged.
fn writer_of(name: String) -> String {
    writing_of(&name).map_or(name, |writing| writing.id.to_owned())
}

/// Converts a checkpoint; returns the report as JSON.
#[pyfunction]
pub(crate) fn convert(
    py: Python<'_>,
    source: Located<'_>,
    path: PathBuf,
    options: ConvertOptions,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let place = Place::of(&source)?;
    // A mistake in the options is found before anything is read.
    let sync = options.sync;
    let (options, rules) = detached(py, || {
        let options = options.of_job(PathBuf::new(), &path)?;
        let rules = options.reading.read_as.clone();
        Ok((options, rules))
    })?;
    let checkpoint =
        Watch::new(None).reading(py, move |progress| read_as(place.open(progress)?, &rules))?;
    Watch::new(progress).over(py, |progress| {
        let conversion = options.conversion(&checkpoint);
        let conversion = if sync { conversion.sync() } else { conversion };
        Ok(conversion.write_with(&path, progress)?.json())
    })
}

/// Plans a conversion, and writes nothing; returns the report as JSON. With `scan`, reads the values
/// that are cast, to count what that does to them.
#[pyfunction]
pub(crate) fn plan_conversion(
    py: Python<'_>,
    source: Located<'_>,
    path: PathBuf,
    options: ConvertOptions,
    scan: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let place = Place::of(&source)?;
    Watch::new(progress).reading(py, move |progress| {
        let options = options.of_job(PathBuf::new(), &path)?;
        let checkpoint = read_as(place.open(progress)?, &options.reading.read_as)?;
        let _call = checkpoint.call();
        let planned = options.conversion(&checkpoint).planned(&file_name(&path)?)?;
        let counted = match scan {
            true => Some(count(planned.plan.clone(), progress)?),
            false => None,
        };
        let paths = output_paths(&planned.plan, &path);
        let limits = checkpoint.inner().files.limits();
        let writing = FileOptions {
            replace: Replace::of(options.replace),
            ..FileOptions::new(limits, checkpoint.sources())
        };
        let files = PlannedPaths { removed: replaced_shards(&paths, &writing), paths };
        planned.json(&path.to_string_lossy(), &files, counted.as_ref())
    })
}

/// Returns a checkpoint in which arrays without a dtype have the dtype of these rules.
pub(crate) fn read_as(checkpoint: Checkpoint, rules: &[String]) -> Result<Checkpoint> {
    let rules = rules.iter().map(|rule| read_as_rule(rule)).collect::<Result<Vec<_>>>()?;
    Ok(checkpoint.read_as(&rules)?.unwrap_or(checkpoint))
}
