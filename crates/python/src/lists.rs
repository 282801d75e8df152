//! Lists of what a checkpoint holds, as the JSON that the command prints.

use std::collections::HashSet;

use pyo3::prelude::*;
use statelens::parts::checkpoint::{self as core, Leaf};
use statelens::parts::convert::{Pattern, dtype_named};
use statelens::parts::describe::{GroupAttributes, dtype_of, leaf_json};
use statelens::parts::values::Json;
use statelens::{Error, ManifestForm, Result};

use crate::place::{Located, Place};
use crate::watch::Watch;

/// Lists the leaves whose keys match a pattern, as `statelens ls --json` does: only tensors, and only
/// those of some dtypes, if requested.
#[pyfunction]
pub(crate) fn ls(
    py: Python<'_>,
    source: Located<'_>,
    patterns: Vec<String>,
    tensors: bool,
    dtypes: Vec<String>,
    min_bytes: u64,
) -> PyResult<String> {
    let place = Place::of(&source)?;
    Watch::new(None).reading(py, move |progress| {
        let patterns = Pattern::all(&patterns)?;
        // Names of torch, short names, and the names that the list has.
        let named = |name: String| dtype_named(&name).map_or(name, |dtype| dtype.name().to_owned());
        let dtypes: HashSet<String> = dtypes.into_iter().map(named).collect();
        let checkpoint = place.open(progress)?;
        let core = checkpoint.inner();
        core.room(400)?;
        let wanted = |leaf: &Leaf| {
            let dtype = dtype_of(core, leaf.target);
            (!tensors || dtype.is_some())
                && (min_bytes == 0 || bytes_of(core, leaf) >= min_bytes)
                && (dtypes.is_empty() || dtype.is_some_and(|dtype| dtypes.contains(dtype.name())))
                && Pattern::any_selects(&patterns, &leaf.flat.to_lossy())
        };
        let mut json = Json::new();
        json.open('{');
        json.name("statelens").number(1);
        json.name("entries").open('[');
        for leaf in core.each_leaf().filter(wanted) {
            json.object(|json| leaf_json(json, core, &leaf));
        }
        json.close(']');
        GroupAttributes::of(core).write(&mut json);
        json.close('}');
        Ok(json.take())
    })
}

/// Returns the bytes of a tensor; 0 for other values.
fn bytes_of(checkpoint: &core::Checkpoint, leaf: &Leaf) -> u64 {
    checkpoint.tensor_of(leaf.target).and_then(|(_, tensor)| tensor.nbytes()).unwrap_or(0)
}

/// Returns the manifest of a checkpoint: the hash or the value of each leaf.
#[pyfunction]
pub(crate) fn manifest(
    py: Python<'_>,
    source: Located<'_>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let place = Place::of(&source)?;
    Watch::new(progress).reading(py, move |progress| {
        let checkpoint = place.open(progress)?;
        let mut text = String::new();
        let mut take = |piece: &str| {
            text.push_str(piece);
            Ok(())
        };
        let unread = checkpoint.manifest(ManifestForm::Json, &mut take, progress)?;
        match unread.first() {
            None => Ok(text),
            Some(first) => Err(Error::damaged(format!(
                "`{}` can't be read: {}, as {} of its values",
                first.key,
                first.why.trim_end_matches('.'),
                unread.len()
            ))),
        }
    })
}

/// Returns, for each key, whether a pattern matches it.
#[pyfunction]
pub(crate) fn matching(
    py: Python<'_>,
    patterns: Vec<String>,
    keys: Vec<String>,
) -> PyResult<Vec<bool>> {
    crate::errors::detached(py, || -> Result<Vec<bool>> {
        let patterns = Pattern::all(&patterns)?;
        Ok(keys.iter().map(|key| Pattern::any_selects(&patterns, key)).collect())
    })
}
