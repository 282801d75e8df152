//! Reports about checkpoints, as the JSON that the command prints.

use pyo3::prelude::*;
use statelens::parts::checkpoint::Leaf;
use statelens::parts::compare::check::{
    CheckOptions, Expected, LibraryRelease, Reference as Against, check_checkpoint,
};
use statelens::parts::compare::diff::Tolerance;
use statelens::parts::compare::verify::Manifest;
use statelens::parts::convert::Pattern;
use statelens::parts::describe::share::{
    write_fragment, write_html, write_json, write_markdown, write_text,
};
use statelens::parts::values::findings_json;
use statelens::statistics::{self, Grouping, MeasuredTensors, ReadTwice, StatisticsOptions};
use statelens::{Checkpoint, DiffOptions, Error, Progress, Result, diff_with};

use crate::place::{Located, Place};
use crate::watch::Watch;

/// Reads everything, and checks every checksum.
#[pyfunction]
pub(crate) fn verify(
    py: Python<'_>,
    source: Located<'_>,
    finite: bool,
    manifest: Option<Vec<u8>>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let place = Place::of(&source)?;
    Watch::new(progress).over(py, |progress| {
        let manifest = manifest.as_deref().map(Manifest::parse).transpose()?;
        let opened = place.open(progress);
        let report = Checkpoint::verify_opened(opened, manifest.as_ref(), progress)?;
        Ok(report.json(report.answer(finite)))
    })
}

/// Scans a file for code that loading it would run.
#[pyfunction]
pub(crate) fn scan(
    py: Python<'_>,
    source: Located<'_>,
    allow: Vec<String>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let place = Place::of(&source)?;
    Watch::new(progress).over(py, |progress| Ok(findings_json(None, &place.scan(allow, progress)?)))
}

/// Compares two checkpoints.
#[pyfunction]
pub(crate) fn diff(
    py: Python<'_>,
    left: Located<'_>,
    right: Located<'_>,
    tolerance: Option<(f64, f64)>,
    flags: (bool, bool, bool, bool),
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let places = (Place::of(&left)?, Place::of(&right)?);
    let (nan_differs, ignore_dtype, ignore_type, structure) = flags;
    let tolerance = tolerance.map(|(relative, absolute)| Tolerance { relative, absolute });
    let options = DiffOptions { tolerance, nan_differs, ignore_dtype, ignore_type, structure };
    Watch::new(progress).over(py, |progress| {
        let (left, right) = (places.0.open(progress)?, places.1.open(progress)?);
        Ok(diff_with(&left, &right, options, progress)?.json())
    })
}

/// A key, with its dtype and shape as far as known.
type KeyType = (String, Option<String>, Option<Vec<u64>>);

/// What a checkpoint is checked against.
#[derive(FromPyObject)]
pub(crate) enum Reference<'py> {
    /// Keys.
    #[pyo3(transparent)]
    List(Vec<KeyType>),
    /// A checkpoint.
    #[pyo3(transparent)]
    Other(Located<'py>),
}

/// Checks whether a checkpoint would load into another, or into a model with these keys.
#[pyfunction]
pub(crate) fn check(
    py: Python<'_>,
    source: Located<'_>,
    reference: Reference<'_>,
    state: Option<String>,
    strict: bool,
    release: Option<&str>,
    strict_version: bool,
) -> PyResult<String> {
    let place = Place::of(&source)?;
    let (list, other) = match reference {
        Reference::List(list) => (list, None),
        Reference::Other(other) => (Vec::new(), Some(Place::of(&other)?)),
    };
    Watch::new(None).over(py, |progress| {
        let release = release.map(LibraryRelease::parse).transpose()?;
        let options = CheckOptions { strict, state, release, strict_version };
        let state = options.state.as_deref().unwrap_or_default();
        let checkpoint = place.open(progress)?;
        let reference = match other {
            Some(place) => Against::of(place.open(progress)?.inner(), state),
            None => {
                let one = |(key, dtype, shape): KeyType| Expected { key, dtype, shape };
                Against::listed(list.into_iter().map(one).collect(), state)
            }
        };
        Ok(check_checkpoint(checkpoint.inner(), reference, &options).json())
    })
}

/// Describes a checkpoint: format, counts, findings and the model.
#[pyfunction]
pub(crate) fn info(py: Python<'_>, source: Located<'_>, model: bool) -> PyResult<String> {
    let place = Place::of(&source)?;
    Watch::new(None).over(py, |progress| {
        let config = place.path().and_then(statelens_cli::sibling_config);
        let checkpoint = place.open(progress)?;
        Ok(checkpoint.info(config.as_ref(), model)?.json())
    })
}

/// Summarises a checkpoint.
#[pyfunction]
pub(crate) fn summary(
    py: Python<'_>,
    source: Located<'_>,
    to: &str,
    stats: bool,
    content: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let place = Place::of(&source)?;
    Watch::new(progress).over(py, |progress| {
        let outline = place.open(progress)?.outline(stats, content, None, progress)?;
        match to {
            "text" => Ok(write_text(&outline)),
            "markdown" => Ok(write_markdown(&outline)),
            "html" => Ok(write_html(&outline)),
            "fragment" => Ok(write_fragment(&outline)),
            "json" => Ok(write_json(&outline)),
            _ => Err(Error::refused(format!("`{to}` is not a kind of summary"))
                .expected("text, markdown, html or json")),
        }
    })
}

/// Computes statistics of all tensors whose keys match a pattern.
#[pyfunction]
pub(crate) fn stats(
    py: Python<'_>,
    source: Located<'_>,
    patterns: Vec<String>,
    by: Option<&str>,
    bins: u16,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let place = Place::of(&source)?;
    Watch::new(progress).over(py, |progress| {
        let by = by.map(Grouping::named).transpose()?;
        let options = StatisticsOptions { bins: bins.into(), by, ..StatisticsOptions::default() };
        measured(&place.open(progress)?, &Pattern::all(&patterns)?, options, progress)
    })
}

fn measured(
    checkpoint: &Checkpoint,
    patterns: &[Pattern],
    options: StatisticsOptions<'_>,
    progress: &mut dyn Progress,
) -> Result<String> {
    let _call = checkpoint.call();
    let (core, workers) = (checkpoint.inner(), checkpoint.workers());
    core.room(800)?;
    let wanted = |leaf: &Leaf| Pattern::any_selects(patterns, &leaf.flat.to_lossy());
    let leaves: Vec<Leaf> = core.leaves().into_iter().filter(wanted).collect();
    let mut all = MeasuredTensors::new(options, core, &leaves);
    let first = statistics::first_read(core, &leaves);
    statistics::drive(first, workers, progress, &mut |id, found| all.take(id, found))?;
    let mut again = |survey, out: &mut dyn FnMut(_, _) -> Result<()>| {
        statistics::drive(survey, workers, progress, out)
    };
    let twice = ReadTwice::read(core, &leaves, &all, options.rows, &mut again)?;
    let found = twice.findings(core, &leaves);
    checkpoint.unchanged()?;
    let mut text = String::new();
    all.json(&all.rows(&leaves), &leaves, &twice, &found, None, &mut |piece| {
        text.push_str(piece);
        Ok::<(), Error>(())
    })?;
    Ok(text)
}
