//! Conversions.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use statelens::job::{ConvertOptions as JobOptions, EditTexts, Reading};
use statelens::parts::convert::OutputOptions;
use statelens::parts::formats::writing_for_name;
use statelens::{Error, Opener, Result};

use crate::place::Place;
use crate::watch::Watch;

/// The options of a conversion.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct ConvertOptions {
    to: Option<String>,
    version: Option<String>,
    compression: Option<String>,
    shard_size: Option<String>,
    select: Vec<String>,
    exclude: Vec<String>,
    states: Vec<String>,
    rename: Vec<(String, String)>,
    strip_prefix: String,
    prefix: String,
    cast: Vec<(String, String)>,
    untie: bool,
    lossy: bool,
    replace: bool,
}

impl ConvertOptions {
    /// Returns the options of a conversion of `source` to `path`. The format is that of the
    /// extension, unless another is requested.
    pub(crate) fn of_job(self, source: PathBuf, path: &Path) -> Result<JobOptions> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let by_name = || -> Result<String> {
            let writing = writing_for_name(&name).ok_or_else(|| {
                Error::refused("the extension is not that of a format")
                    .in_file(path.display().to_string())
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
                to: self.to.map_or_else(by_name, Ok)?,
                version: self.version,
                compression: self.compression,
                shard_size: self.shard_size,
                ..OutputOptions::default()
            },
            edits: EditTexts {
                untie: self.untie,
                states: self.states,
                select: self.select,
                exclude: self.exclude,
                strip_prefix: self.strip_prefix,
                rename: joined(self.rename, "=>"),
                prefix: self.prefix,
                cast: joined(self.cast, "="),
                ..EditTexts::default()
            },
            lossy: self.lossy,
            replace: self.replace,
            reading: Reading::default(),
        })
    }
}

/// Converts a checkpoint; returns the report as JSON.
#[pyfunction]
pub(crate) fn convert(
    source: &Bound<'_, PyAny>,
    name: &str,
    path: PathBuf,
    options: ConvertOptions,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let place = Place::of(source, name)?;
    Watch::new(progress).over(source.py(), |progress| {
        let options = options.of_job(PathBuf::new(), &path)?;
        let checkpoint = place.open(Opener::new())?;
        Ok(options.conversion(&checkpoint).write_with(&path, progress)?.json())
    })
}

/// Converts a model with the arguments of `statelens convert-model`; returns what it prints.
#[pyfunction]
pub(crate) fn convert_model(
    py: Python<'_>,
    arguments: Vec<OsString>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    Watch::new(progress).owned_by(py, |progress| statelens_cli::convert_model(arguments, progress))
}
