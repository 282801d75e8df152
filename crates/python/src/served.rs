//! The files of an open checkpoint, for a page that reads ranges of them.

use std::collections::HashSet;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use statelens::Error;
use statelens::parts::checkpoint::{FileId, Span};
use statelens::parts::describe::CheckpointSummary;

use crate::checkpoint::NativeCheckpoint;
use crate::errors::detached;

/// The most bytes of one read.
const MAX_READ: u64 = 64 << 20;

/// Endings of the names of files that describe the checkpoint, if they are in its folder.
const SIBLINGS: [&str; 3] = ["config.json", ".index.json", ".metadata"];

/// Number, name and size of a file.
type ServedFile = (u32, String, u64);

/// Returns the number of the file that was opened, and number, name and size of the files that the
/// checkpoint is read from.
#[pyfunction]
pub(crate) fn files(
    py: Python<'_>,
    checkpoint: &NativeCheckpoint,
) -> PyResult<(u32, Vec<ServedFile>)> {
    detached(py, || {
        let inner = checkpoint.checkpoint.inner();
        let files = &inner.files;
        let main = files.main().map_err(|_| {
            Error::refused("this checkpoint is not in a file")
                .advice("Save it with `pystatelens.save`, and view that file.")
        })?;
        let used = CheckpointSummary::of(inner).files;
        let used: HashSet<String> = used.into_iter().map(|(name, _)| name).collect();
        let is_sibling = |name: &str| SIBLINGS.iter().any(|end| name.ends_with(end));
        let wanted = files
            .names()
            .filter(|(id, name)| *id == main || used.contains(*name) || is_sibling(name));
        Ok((main.0, wanted.map(|(id, name)| (id.0, name.to_owned(), files.len(id))).collect()))
    })
}

/// Returns the page in one file, if the package was built with it.
#[pyfunction]
pub(crate) fn page(py: Python<'_>) -> Option<Bound<'_, PyBytes>> {
    statelens_cli::single_page().map(|bytes| PyBytes::new(py, bytes))
}

/// Reads bytes of a file, as they are stored.
#[pyfunction]
pub(crate) fn read_file<'py>(
    py: Python<'py>,
    checkpoint: &NativeCheckpoint,
    file: u32,
    offset: u64,
    length: u64,
) -> PyResult<Bound<'py, PyBytes>> {
    let bytes = detached(py, || {
        if length > MAX_READ {
            return Err(Error::limit("a read of this many bytes"));
        }
        let _call = checkpoint.checkpoint.call();
        let (files, id) = (&checkpoint.checkpoint.inner().files, FileId(file));
        files.check(Span { file: id, offset, len: length })?;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        files.read_weights(id, offset, &mut bytes)?;
        Ok(bytes)
    })?;
    Ok(PyBytes::new(py, &bytes))
}
