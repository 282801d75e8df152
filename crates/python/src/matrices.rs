//! Reports about single tensors: ranked lines, singular values, differences, pictures, code.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use statelens::output::Sync;
use statelens::parallel;
use statelens::parts::checkpoint::{self as core, Leaf};
use statelens::parts::compare::diff::{TENSOR_DIFF_BLOCKS, TensorComparison, type_text};
use statelens::parts::tensor::numbers;
use statelens::parts::values::singular::Which;
use statelens::parts::values::{Json, Scale, report_json};
use statelens::statistics::{RankedLines, Ranking, SingularReport};
use statelens::{Checkpoint, Error, Result, Slice, Tensor};
use statelens_cli::{PictureFile, picture_is_svg, save_difference};

use crate::errors::detached;
use crate::place::{Located, Place};
use crate::reports::{CompareOptions, Sides};
use crate::tensor::NativeTensor;
use crate::watch::Watch;

/// Ranks the rows, columns or kernels of a tensor by their norm.
#[pyfunction]
pub(crate) fn rank(
    py: Python<'_>,
    tensor: &NativeTensor,
    lines: String,
    top: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let tensor = tensor.0.clone();
    Watch::new(progress).reading(py, move |progress| {
        let lines = RankedLines::named(&lines)?;
        let _call = tensor.call();
        let decoded = decoded(&tensor)?;
        let ranking = Ranking::read(tensor.files(), &decoded, tensor.key(), lines, progress)?;
        tensor.sources().iter().try_for_each(|source| source.unchanged())?;
        Ok(ranking.json(tensor.key(), top))
    })
}

/// Finds the singular values of a matrix; `all` or the `top` largest of them, or the usual number.
/// With `dry_run`, only plans it.
#[pyfunction]
pub(crate) fn singular(
    py: Python<'_>,
    tensor: &NativeTensor,
    all: bool,
    top: Option<u32>,
    dry_run: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let tensor = tensor.0.clone();
    Watch::new(progress).reading(py, move |progress| {
        let which = match (all, top) {
            (true, _) => Which::All,
            (false, Some(count)) => Which::Largest(count),
            (false, None) => Which::Usual,
        };
        let _call = tensor.call();
        let decoded = decoded(&tensor)?;
        let mut report = SingularReport::plan(&decoded, tensor.key(), which)?;
        if !dry_run {
            report.read(tensor.files(), &decoded, progress)?;
            tensor.sources().iter().try_for_each(|source| source.unchanged())?;
        }
        Ok(report_json(&report))
    })
}

/// Returns a tensor of numbers with the values of `tensor`.
fn decoded(tensor: &Tensor) -> Result<Cow<'_, core::Tensor>> {
    numbers(tensor.inner()).ok_or_else(|| {
        let (key, dtype) = (tensor.key(), tensor.dtype());
        Error::unsupported(format!("`{key}`: values of {dtype} can't be decoded"))
    })
}

/// The options of a picture.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct PictureOptions {
    log: bool,
    replace: bool,
    sync: bool,
}

impl PictureOptions {
    fn scale(&self) -> Scale {
        if self.log { Scale::Log } else { Scale::Linear }
    }
}

/// Draws a matrix into a file; returns its size in bytes.
#[pyfunction]
pub(crate) fn draw(
    py: Python<'_>,
    tensor: &NativeTensor,
    path: PathBuf,
    size: (u32, u32),
    options: PictureOptions,
    progress: Option<Py<PyAny>>,
) -> PyResult<u64> {
    let tensor = tensor.0.clone();
    Watch::new(progress).over(py, |progress| {
        let picture = PictureFile {
            target: &path,
            size,
            scale: options.scale(),
            replace: options.replace,
            sync: Sync::of(options.sync),
        };
        picture.draw(&tensor, progress)
    })
}

/// Compares tensors of two checkpoints in detail; draws the difference of a single one, if there is
/// a path for it.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "Python's layer groups them")]
pub(crate) fn tensor_diff(
    py: Python<'_>,
    left: Located<'_>,
    right: Located<'_>,
    keys: Vec<String>,
    options: CompareOptions,
    bins: u16,
    picture: Option<PathBuf>,
    drawing: PictureOptions,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let places = (Place::of(&left)?, Place::of(&right)?);
    // Found before anything is read.
    detached(py, || match &picture {
        Some(path) => picture_is_svg(path).map(|_| ()),
        None => Ok(()),
    })?;
    Watch::new(progress).reading(py, move |progress| {
        let Sides { left, right, .. } = options.sides(places, progress)?;
        let _calls = (left.call(), right.call());
        let workers = left.workers().min(right.workers());
        let (of_left, of_right) = (left.inner().leaves(), right.inner().leaves());
        let (scale, mut equal, mut json) = (drawing.scale(), true, Json::new());
        json.open('{');
        json.name("statelens").number(1);
        json.name("tensors").open('[');
        for key in &keys {
            let (one, two) = (leaf(&left, &of_left, key)?, leaf(&right, &of_right, key)?);
            let sides = ((left.inner().clone(), one), (right.inner().clone(), two));
            let mut machine = TensorComparison::new(sides.0, sides.1, TENSOR_DIFF_BLOCKS)
                .map_err(|error| error.context(format!("`{key}`")))?;
            parallel::drive(&mut machine, workers, progress)
                .map_err(|error| error.context(format!("`{key}`")))?;
            let found = machine.into_found();
            equal &= found.differing() == 0;
            let types = [type_text(left.inner(), one), type_text(right.inner(), two)];
            json.value(&found.fields(key, &types, scale, bins.into()));
            if let Some(path) = &picture {
                let sync = Sync::of(drawing.sync);
                save_difference(key, &found, scale, path, drawing.replace, sync)?;
            }
        }
        json.close(']');
        json.name("matches").bool(equal);
        json.close('}');
        left.unchanged()?;
        right.unchanged()?;
        Ok(json.take())
    })
}

/// Returns the leaf with a flat key.
fn leaf<'a>(checkpoint: &Checkpoint, leaves: &'a [Leaf], key: &str) -> Result<&'a Leaf> {
    match leaves.iter().find(|leaf| leaf.flat.to_lossy() == key) {
        Some(leaf) => Ok(leaf),
        None => Err(match checkpoint.leaf_id(key) {
            Err(error) => error,
            Ok(_) => Error::refused(format!("there is no key `{key}`")).coded("no-such-key"),
        }),
    }
}

/// Returns Python code that reads the value of a key, which a slice may follow. `given` is the path or
/// address by which the checkpoint was opened.
#[pyfunction]
pub(crate) fn snippet(
    py: Python<'_>,
    source: Located<'_>,
    key: String,
    library: Option<String>,
    given: Option<PathBuf>,
) -> PyResult<String> {
    let place = Place::of(&source)?;
    Watch::new(None).reading(py, move |progress| {
        let checkpoint = place.open(progress)?;
        checkpoint.inner().room(400)?;
        let leaves = checkpoint.inner().leaves();
        let parts = key.strip_suffix(']').and_then(|text| text.rsplit_once('['));
        let (leaf, slice) = match (leaf(&checkpoint, &leaves, &key), parts) {
            (Ok(leaf), _) => (leaf, None),
            (Err(_), Some((key, slice))) => {
                (self::leaf(&checkpoint, &leaves, key)?, Some(slice.parse::<Slice>()?))
            }
            (Err(error), None) => return Err(error),
        };
        let given = given.as_deref().unwrap_or(Path::new(""));
        let core = (&**checkpoint.inner(), &**checkpoint.sources());
        statelens_cli::snippet(core, leaf, slice.as_ref(), library.as_deref(), given)
    })
}
