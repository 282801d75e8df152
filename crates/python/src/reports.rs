//! Reports about checkpoints, as the JSON that the command prints.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use statelens::folder::{self, RuleLevels};
use statelens::parts::compare::check::{
    CheckOptions, Expected, LibraryRelease, Reference as Against, check_checkpoint,
};
use statelens::parts::compare::diff::Tolerance;
use statelens::parts::compare::verify::Manifest;
use statelens::parts::convert::{EditTexts, Pattern};
use statelens::parts::describe::share::{
    KeysAs, LinkOptions, address, write_fragment, write_html, write_json, write_markdown,
    write_picture, write_text,
};
use statelens::parts::values::{Scale, findings_json};
use statelens::sides::{RenameReport, SideEdits, alike, comparison_json};
use statelens::statistics::{self, Condition, FailOn, Grouping, StatisticsOptions};
use statelens::{Checkpoint, DiffOptions, Error, Limits, Progress, Result, diff_with, listed_keys};

use crate::place::{Located, OpenOptions, Place};
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
    Watch::new(progress).reading(py, move |progress| {
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
    options: OpenOptions,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let place = Place::of(&source)?.with(options);
    Watch::new(progress)
        .reading(py, move |progress| Ok(findings_json(None, &place.scan(allow, progress)?)))
}

/// The options of a comparison.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct CompareOptions {
    tolerance: Option<(f64, f64)>,
    nan_differs: bool,
    ignore_dtype: bool,
    ignore_type: bool,
    structure: bool,
    select: Vec<String>,
    exclude: Vec<String>,
    strip_prefix: String,
    rename: Vec<(String, String)>,
    rename_map: Option<String>,
    prefix: String,
    by_change: bool,
    by_layer: bool,
}

/// The sides of a comparison, in one form.
pub(crate) struct Sides {
    pub(crate) left: Checkpoint,
    pub(crate) right: Checkpoint,
    /// Whether only one of them was quantised.
    quantised: bool,
}

impl CompareOptions {
    fn compared(&self) -> DiffOptions {
        let tolerance = self.tolerance.map(|(relative, absolute)| Tolerance { relative, absolute });
        DiffOptions {
            tolerance,
            nan_differs: self.nan_differs,
            ignore_dtype: self.ignore_dtype,
            ignore_type: self.ignore_type,
            structure: self.structure,
        }
    }

    /// Opens both sides, and edits them.
    pub(crate) fn sides(
        &self,
        (left, right): (Place, Place),
        progress: &mut dyn Progress,
    ) -> Result<Sides> {
        let filter = EditTexts {
            select: self.select.clone(),
            exclude: self.exclude.clone(),
            ..EditTexts::default()
        };
        let rename = EditTexts {
            strip_prefix: self.strip_prefix.clone(),
            rename: self.rename.iter().map(|(one, other)| format!("{one}=>{other}")).collect(),
            rename_list: self.rename_map.clone(),
            prefix: self.prefix.clone(),
            ..EditTexts::default()
        };
        let edits = SideEdits { filter: filter.edit()?, rename: rename.edit()? };
        let (left, right) = (left.open(progress)?, right.open(progress)?);
        // As the command does, so that both give the same report.
        let (left, right, _, quantised) = alike(left, right)?;
        let edited = edits.apply(left, right)?;
        Ok(Sides { left: edited.left, right: edited.right, quantised })
    }
}

/// Compares two checkpoints.
#[pyfunction]
pub(crate) fn diff(
    py: Python<'_>,
    left: Located<'_>,
    right: Located<'_>,
    options: CompareOptions,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let places = (Place::of(&left)?, Place::of(&right)?);
    Watch::new(progress).reading(py, move |progress| {
        let Sides { left, right, quantised } = options.sides(places, progress)?;
        let mut report = diff_with(&left, &right, options.compared(), progress)?;
        // A quantised weight always differs: the question is how much.
        if quantised || options.by_change {
            report.sort_by_change();
        }
        Ok(comparison_json(&report, options.by_layer))
    })
}

/// Finds tensors that have another key on the other side.
#[pyfunction]
pub(crate) fn renames(
    py: Python<'_>,
    left: Located<'_>,
    right: Located<'_>,
    options: CompareOptions,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let places = (Place::of(&left)?, Place::of(&right)?);
    Watch::new(progress).reading(py, move |progress| {
        let Sides { left, right, .. } = options.sides(places, progress)?;
        for side in [&left, &right] {
            side.check_size("comparing all values")?;
        }
        Ok(RenameReport::find(&left, &right, options.compared(), progress)?.json())
    })
}

/// A key, with its dtype and shape as far as known.
type KeyType = (String, Option<String>, Option<Vec<u64>>);

/// The reference that a checkpoint is checked against.
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
    release: Option<String>,
    strict_version: bool,
) -> PyResult<String> {
    let place = Place::of(&source)?;
    let (list, other) = match reference {
        Reference::List(list) => (list, None),
        Reference::Other(other) => (Vec::new(), Some(Place::of(&other)?)),
    };
    Watch::new(None).reading(py, move |progress| {
        let release = release.as_deref().map(LibraryRelease::parse).transpose()?;
        let options = CheckOptions { strict, state, release, strict_version };
        let state = options.state.as_deref().unwrap_or_default();
        let checkpoint = place.open(progress)?;
        let reference = match other {
            Some(place) => against(place, state, progress)?,
            None => {
                let one = |(key, dtype, shape): KeyType| Expected { key, dtype, shape };
                Against::listed(list.into_iter().map(one).collect(), state)
            }
        };
        Ok(check_checkpoint(checkpoint.inner(), reference, &options).json())
    })
}

/// Returns the keys of a checkpoint, or those that a file lists which is not a checkpoint.
fn against(place: Place, state: &str, progress: &mut dyn Progress) -> Result<Against> {
    let path = place.path().map(Path::to_owned);
    // A checkpoint may be text, and a list of keys can't be recognised by its content.
    let error = match place.open(progress) {
        Ok(checkpoint) => return Ok(Against::of(checkpoint.inner(), state)),
        Err(error) => error,
    };
    let listed = path.as_deref().map(listed_keys).transpose()?.flatten();
    Ok(Against::listed(listed.ok_or(error)?, state))
}

/// Checks whether a folder with a model is whole and consistent. With `fix_index`, first writes a
/// correct index.
#[pyfunction]
pub(crate) fn check_folder(
    py: Python<'_>,
    path: PathBuf,
    levels: Vec<String>,
    fix_index: bool,
) -> PyResult<String> {
    Watch::new(None).over(py, |progress| {
        let mut rules = RuleLevels::default();
        levels.iter().try_for_each(|level| rules.set(level))?;
        if fix_index {
            folder::fix_index(&path, &Limits::default(), progress)?;
        }
        Ok(folder::check(&path, &rules, &Limits::default(), progress)?.json())
    })
}

/// Describes a checkpoint: format, counts, findings and the model.
#[pyfunction]
pub(crate) fn info(
    py: Python<'_>,
    source: Located<'_>,
    model: bool,
    config: Option<PathBuf>,
) -> PyResult<String> {
    let place = Place::of(&source)?;
    Watch::new(None).reading(py, move |progress| {
        let config = match (config, place.named()) {
            (Some(config), _) => statelens_cli::model_config(&config, Some(&config))?,
            (None, Some(path)) => statelens_cli::model_config(path, None)?,
            (None, None) => None,
        };
        let checkpoint = place.open(progress)?;
        Ok(checkpoint.info(config.as_ref(), model)?.json())
    })
}

/// Summarises a checkpoint.
#[pyfunction]
pub(crate) fn summary(
    py: Python<'_>,
    source: Located<'_>,
    to: String,
    stats: bool,
    content: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let place = Place::of(&source)?;
    Watch::new(progress).reading(py, move |progress| {
        let outline = place.open(progress)?.outline(stats, content, None, progress)?;
        match &*to {
            "text" => Ok(write_text(&outline)),
            "markdown" => Ok(write_markdown(&outline)),
            "html" => Ok(write_html(&outline)),
            "fragment" => Ok(write_fragment(&outline)),
            "json" => Ok(write_json(&outline)),
            "svg" => Ok(write_picture(&outline, true)),
            _ => Err(Error::refused(format!("`{to}` is not a kind of summary"))
                .expected("text, markdown, html, json or svg")),
        }
    })
}

/// The options of a link that holds the structure of a checkpoint.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct SharedLink {
    base: String,
    keys: String,
    values: bool,
    findings: bool,
    stats: bool,
}

/// Returns the address of a page with the structure of a checkpoint.
#[pyfunction]
pub(crate) fn link(
    py: Python<'_>,
    source: Located<'_>,
    options: SharedLink,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let place = Place::of(&source)?;
    Watch::new(progress).reading(py, move |progress| {
        let SharedLink { base, keys, values, findings, stats: statistics } = options;
        let keys = match &*keys {
            "plain" => KeysAs::Plain,
            "coded" => KeysAs::Coded,
            "hidden" => KeysAs::Hidden,
            _ => {
                return Err(Error::refused(format!("`{keys}` is not a form of keys"))
                    .expected("plain, coded or hidden"));
            }
        };
        let outline = place.open(progress)?.outline(statistics, false, None, progress)?;
        address(&base, &outline, &LinkOptions { keys, values, findings, statistics })
    })
}

/// The options of statistics.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct StatsOptions {
    patterns: Vec<String>,
    conditions: Vec<String>,
    by: Option<String>,
    bins: u16,
    log: bool,
    rows: bool,
    fail_on: Vec<String>,
}

/// Computes statistics of all tensors whose keys match a pattern.
#[pyfunction]
pub(crate) fn stats(
    py: Python<'_>,
    source: Located<'_>,
    options: StatsOptions,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let place = Place::of(&source)?;
    Watch::new(progress).reading(py, move |progress| {
        let parsed =
            |text: &String| text.parse().map_err(|why| Error::refused(format!("`{text}`: {why}")));
        let conditions =
            options.conditions.iter().map(parsed).collect::<Result<Vec<Condition>>>()?;
        let measuring = StatisticsOptions {
            bins: options.bins.into(),
            scale: if options.log { Scale::Log } else { Scale::Linear },
            by: options.by.as_deref().map(Grouping::named).transpose()?,
            keep: &|of| conditions.iter().all(|condition| condition.holds(of)),
            rows: options.rows,
        };
        let fail_on = options.fail_on.iter().map(|name| FailOn::named(name));
        let fail_on = fail_on.collect::<Result<Vec<_>>>()?;
        let patterns = Pattern::all(&options.patterns)?;
        let keys: Vec<&str> = options.patterns.iter().map(String::as_str).collect();
        // As the command does, so that both give the same report.
        let stored = place.open(progress)?;
        let (shown, _) = stored.quantised_unless(&keys)?;
        let sides = (&stored, &shown);
        let mut progress = progress;
        statistics::measure(sides, &patterns, measuring, &fail_on, &mut progress, |found| {
            let mut text = String::new();
            found.json(&found.tensors.rows(found.leaves), &mut |piece| {
                text.push_str(piece);
                Ok::<(), Error>(())
            })?;
            Ok(text)
        })
    })
}
