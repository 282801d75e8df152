//! Conversions.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use statelens::job::{ConvertOptions as JobOptions, EditTexts, Reading};
use statelens::parts::formats::{writing, writing_for_name};
use statelens::{Conversion, DType, Error, Opener, Result, Target};

use crate::errors::detached;
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
    fn target(&self, path: &Path) -> Result<Target> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let writing = match &self.to {
            Some(id) => writing(id)?,
            None => writing_for_name(&name).ok_or_else(|| {
                Error::refused("the extension is not that of a format")
                    .in_file(path.display().to_string())
                    .advice("Choose one with `to`.")
            })?,
        };
        Ok(Target::Registered(writing.id))
    }

    /// Returns the options of a job that converts `source`.
    pub(crate) fn of_job(self, source: PathBuf, path: PathBuf) -> Result<JobOptions> {
        let joined = |pairs: Vec<(String, String)>, by: &str| {
            pairs.into_iter().map(|(one, other)| format!("{one}{by}{other}")).collect()
        };
        Ok(JobOptions {
            to: self.target(&path)?.id().to_owned(),
            source,
            destination: path,
            version: self.version,
            compression: self.compression,
            object_graph: false,
            state_file: false,
            shard_size: self.shard_size,
            shards: Vec::new(),
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

    fn set<'a>(&self, mut conversion: Conversion<'a>) -> Result<Conversion<'a>> {
        for pattern in &self.select {
            conversion = conversion.select(pattern);
        }
        for pattern in &self.exclude {
            conversion = conversion.exclude(pattern);
        }
        for state in &self.states {
            conversion = conversion.state(state);
        }
        for (pattern, by) in &self.rename {
            conversion = conversion.rename(pattern, by);
        }
        for (pattern, dtype) in &self.cast {
            let unknown = || Error::refused(format!("there is no dtype `{dtype}`"));
            conversion =
                conversion.cast(pattern, DType::from_torch_name(dtype).ok_or_else(unknown)?);
        }
        conversion = conversion.strip_prefix(&self.strip_prefix).prefix(&self.prefix);
        for (set, value) in [
            (Conversion::version as fn(_, &str) -> _, &self.version),
            (Conversion::compression, &self.compression),
            (Conversion::shard_size, &self.shard_size),
        ] {
            if let Some(value) = value {
                conversion = set(conversion, value);
            }
        }
        for (set, flag) in [
            (Conversion::untie as fn(_) -> _, self.untie),
            (Conversion::lossy, self.lossy),
            (Conversion::replace, self.replace),
        ] {
            if flag {
                conversion = set(conversion);
            }
        }
        Ok(conversion)
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
        let target = options.target(&path)?;
        let checkpoint = place.open(Opener::new())?;
        let conversion = options.set(statelens::convert(&checkpoint, target))?;
        Ok(conversion.write_with(&path, progress)?.json())
    })
}

/// Converts a model with the arguments of `statelens convert-model`; returns what it prints.
#[pyfunction]
pub(crate) fn convert_model(py: Python<'_>, arguments: Vec<OsString>) -> PyResult<String> {
    let outcome = detached(py, || statelens_cli::convert_model(arguments));
    // Ctrl-C has stopped it, and is an exception of Python.
    py.check_signals()?;
    outcome
}
