//! Reports about checkpoints, as the JSON that the command prints.

use pyo3::prelude::*;
use statelens::parts::checkpoint::Leaf;
use statelens::parts::compare::check::{
    CheckOptions, Expected, LibraryRelease, Reference as Against, check_checkpoint,
};
use statelens::parts::compare::diff::Tolerance;
use statelens::parts::convert::Pattern;
use statelens::parts::describe::share::{
    write_fragment, write_html, write_json, write_markdown, write_text,
};
use statelens::parts::values::findings_json;
use statelens::statistics::{self, Grouping, MeasuredTensors, ReadTwice, StatisticsOptions};
use statelens::{Checkpoint, DiffOptions, Error, Opener, Progress, Result, diff_with};

use crate::place::Place;
use crate::watch::Watch;

/// Reads everything, and checks every checksum.
#[pyfunction]
pub(crate) fn verify(
    source: &Bound<'_, PyAny>,
    name: &str,
    finite: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let place = Place::of(source, name)?;
    Watch::new(progress).over(source.py(), |progress| {
        let report = Checkpoint::verify_opened(place.open(Opener::new()), None, progress)?;
        Ok(report.json(report.answer(finite)))
    })
}

/// Scans a file for code that loading it would run.
#[pyfunction]
pub(crate) fn scan(
    source: &Bound<'_, PyAny>,
    name: &str,
    allow: Vec<String>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let place = Place::of(source, name)?;
    Watch::new(progress).over(source.py(), |progress| {
        let opener = allow.into_iter().fold(Opener::new().progress(progress), Opener::allow);
        Ok(findings_json(None, &place.scan(opener)?))
    })
}

/// Compares two checkpoints.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "the options of the function in Python")]
pub(crate) fn diff(
    left: &Bound<'_, PyAny>,
    left_name: &str,
    right: &Bound<'_, PyAny>,
    right_name: &str,
    tolerance: Option<(f64, f64)>,
    flags: (bool, bool, bool, bool),
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let places = (Place::of(left, left_name)?, Place::of(right, right_name)?);
    let (nan_differs, ignore_dtype, ignore_type, structure) = flags;
    let tolerance = tolerance.map(|(relative, absolute)| Tolerance { relative, absolute });
    let options = DiffOptions { tolerance, nan_differs, ignore_dtype, ignore_type, structure };
    Watch::new(progress).over(left.py(), |progress| {
        let (left, right) = (places.0.open(Opener::new())?, places.1.open(Opener::new())?);
        Ok(diff_with(&left, &right, options, progress)?.json())
    })
}

/// A key, with its dtype and shape as far as known.
type KeyType = (String, Option<String>, Option<Vec<u64>>);

/// What a checkpoint is checked against.
#[derive(FromPyObject)]
pub(crate) enum Reference<'py> {
    /// Keys.
    List(Vec<KeyType>),
    /// A checkpoint, and the name of its file.
    Other(Bound<'py, PyAny>, String),
}

/// Checks whether a checkpoint would load into another, or into a model with these keys.
#[pyfunction]
pub(crate) fn check(
    source: &Bound<'_, PyAny>,
    name: &str,
    reference: Reference<'_>,
    state: Option<String>,
    strict: bool,
    release: Option<&str>,
    strict_version: bool,
) -> PyResult<String> {
    let py = source.py();
    let place = Place::of(source, name)?;
    let (list, other) = match reference {
        Reference::List(list) => (list, None),
        Reference::Other(other, name) => (Vec::new(), Some(Place::of(&other, &name)?)),
    };
    Watch::new(None).over(py, |progress| {
        let release = release.map(LibraryRelease::parse).transpose()?;
        let options = CheckOptions { strict, state, release, strict_version };
        let state = options.state.as_deref().unwrap_or_default();
        let checkpoint = place.open(Opener::new().progress(progress))?;
        let reference = match other {
            Some(place) => Against::of(place.open(Opener::new())?.inner(), state),
            None => {
                let one = |(key, dtype, shape): KeyType| Expected { key, dtype, shape };
                Against::listed(list.into_iter().map(one).collect(), state)
            }
        };
        Ok(check_checkpoint(checkpoint.inner(), reference, &options).json())
    })
}

/// Summarises a checkpoint.
#[pyfunction]
pub(crate) fn summary(
    source: &Bound<'_, PyAny>,
    name: &str,
    to: &str,
    stats: bool,
    content: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let place = Place::of(source, name)?;
    Watch::new(progress).over(source.py(), |progress| {
        let outline = place.open(Opener::new())?.outline(stats, content, progress)?;
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
    source: &Bound<'_, PyAny>,
    name: &str,
    patterns: Vec<String>,
    by: Option<&str>,
    bins: u16,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let place = Place::of(source, name)?;
    Watch::new(progress).over(source.py(), |progress| {
        let by = by.map(Grouping::named).transpose()?;
        let options = StatisticsOptions { bins: bins.into(), by, ..StatisticsOptions::default() };
        measured(&place.open(Opener::new())?, &Pattern::all(&patterns)?, options, progress)
    })
}

fn measured(
    checkpoint: &Checkpoint,
    patterns: &[Pattern],
    options: StatisticsOptions<'_>,
    progress: &mut dyn Progress,
) -> Result<String> {
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
    let mut text = String::new();
    all.json(&all.rows(&leaves), &leaves, &twice, &found, &mut |piece| {
        text.push_str(piece);
        Ok::<(), Error>(())
    })?;
    Ok(text)
}
