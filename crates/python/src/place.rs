//! Where a checkpoint is: a path, an address or a file object.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use statelens::{Checkpoint, Finding, Opener, Progress, Result, remote};

use crate::checkpoint::NativeCheckpoint;
use crate::file::FileObject;
use crate::watch::Watch;

/// The place of a checkpoint.
pub(crate) enum Place {
    /// A checkpoint that is open.
    Opened(Checkpoint),
    /// A path or an address.
    Named(PathBuf),
    /// A file object, and the name of the file.
    Object(FileObject, String),
}

impl Place {
    /// Takes an open checkpoint, a path, an address, or a file object whose file is called `name`.
    pub(crate) fn of(source: &Bound<'_, PyAny>, name: &str) -> PyResult<Self> {
        if let Ok(opened) = source.cast::<NativeCheckpoint>() {
            return Ok(Self::Opened(opened.get().0.clone()));
        }
        match source.hasattr("read")? {
            true => Ok(Self::Object(FileObject::new(source)?, name.to_owned())),
            false => Ok(Self::Named(source.extract()?)),
        }
    }

    /// Opens the checkpoint.
    pub(crate) fn open(self, opener: Opener<'_>) -> Result<Checkpoint> {
        match self {
            Self::Opened(checkpoint) => Ok(checkpoint),
            Self::Object(object, name) => opener.open_source(&name, object),
            Self::Named(path) => match remote::address(&path) {
                Some(url) => opener.open_url(url),
                None => opener.open(&path),
            },
        }
    }

    /// Scans the files.
    pub(crate) fn scan(self, opener: Opener<'_>) -> Result<Vec<Finding>> {
        match self {
            Self::Opened(checkpoint) => opener.scan_files(checkpoint.inner().files.clone()),
            Self::Object(object, name) => opener.scan_source(&name, object),
            Self::Named(path) => match remote::address(&path) {
                Some(url) => opener.scan_url(url),
                None => opener.scan(&path),
            },
        }
    }
}

/// Returns the options for opening checkpoints: other files that they may refer to, and the maximum
/// number of bytes to fetch.
pub(crate) fn opener<'a>(
    with: Vec<PathBuf>,
    fetch: Option<u64>,
    progress: &'a mut dyn Progress,
) -> Opener<'a> {
    let opener = with.into_iter().fold(Opener::new(), Opener::with).progress(progress);
    match fetch {
        Some(bytes) => opener.fetch_at_most(bytes),
        None => opener,
    }
}

/// Opens a checkpoint.
#[pyfunction]
pub(crate) fn open(
    source: &Bound<'_, PyAny>,
    name: &str,
    with_files: Vec<PathBuf>,
    fetch: Option<u64>,
) -> PyResult<NativeCheckpoint> {
    let place = Place::of(source, name)?;
    let opened = Watch::new(None)
        .over(source.py(), |progress| place.open(opener(with_files, fetch, progress)));
    opened.map(NativeCheckpoint)
}

/// Returns whether a path is an address that Statelens reads itself.
#[pyfunction]
pub(crate) fn is_address(path: &str) -> bool {
    remote::address(Path::new(path)).is_some()
}
