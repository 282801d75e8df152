//! Where a checkpoint is: a path, several paths, an address or a file object.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use pyo3::types::PyList;
use statelens::job::Reading;
use statelens::parts::convert::{read_as_rule, size};
use statelens::parts::quantised::complete;
use statelens::{
    Checkpoint, DType, Error, Finding, Limits, Opener, Progress, ReadAt as _, Result, remote,
};

use crate::checkpoint::NativeCheckpoint;
use crate::errors::{parameter, raised};
use crate::file::FileObject;
use crate::watch::Watch;

/// A source as `pystatelens._checkpoint.located` returns it: an open checkpoint, a path, a list of
/// paths, an address or a file object; the name of its file; the number of bytes that may be fetched.
#[derive(FromPyObject)]
pub(crate) struct Located<'py>(Bound<'py, PyAny>, String, Option<u64>);

/// The place of a checkpoint, and how it is opened.
pub(crate) struct Place {
    kind: PlaceKind,
    /// The number of bytes that may be fetched from it.
    fetch: Option<u64>,
    options: OpenOptions,
}

/// Options for opening a checkpoint.
#[derive(Default, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct OpenOptions {
    /// Further files that the checkpoint refers to.
    with_files: Vec<PathBuf>,
    /// A multiple of the default limits, or 0 for none.
    limit: Option<u64>,
    /// Bytes on disk that may be used for reordering tensors.
    scratch: Option<u64>,
    /// Dtypes of arrays without one: `PATTERN=DTYPE`.
    read_as: Vec<String>,
    /// Whether tensors that hold all layers become one tensor for each layer.
    unstack: bool,
}

enum PlaceKind {
    /// A checkpoint that is open.
    Opened(Checkpoint),
    /// A path or an address.
    Named(PathBuf),
    /// Shards of a set, or checkpoints that are merged.
    Several(Vec<PathBuf>),
    /// A file object, and the name of the file.
    Object(FileObject, String),
}

impl Place {
    /// Takes a source.
    pub(crate) fn of(located: &Located<'_>) -> PyResult<Self> {
        let Located(source, name, fetch) = located;
        let kind = if let Ok(opened) = source.cast::<NativeCheckpoint>() {
            PlaceKind::Opened(opened.get().checkpoint.clone())
        } else if source.is_instance_of::<PyList>() {
            PlaceKind::Several(source.extract()?)
        } else if source.hasattr("read")? {
            PlaceKind::Object(FileObject::new(source)?, name.clone())
        } else {
            PlaceKind::Named(source.extract()?)
        };
        Ok(Self { kind, fetch: *fetch, options: OpenOptions::default() })
    }

    /// Returns the path, if there is one on this machine.
    pub(crate) fn path(&self) -> Option<&Path> {
        match &self.kind {
            PlaceKind::Named(path) if remote::address(path).is_none() => Some(path),
            _ => None,
        }
    }

    /// Returns the path or the address, if the source is one.
    pub(crate) fn named(&self) -> Option<&Path> {
        match &self.kind {
            PlaceKind::Named(path) => Some(path),
            _ => None,
        }
    }

    /// Opens the checkpoint. `progress` can cancel, and hears no figures.
    pub(crate) fn open(self, progress: &mut dyn Progress) -> Result<Checkpoint> {
        let rules = self.options.read_as.iter().map(|rule| read_as_rule(rule));
        let rules = rules.collect::<Result<Vec<_>>>()?;
        let unstack = self.options.unstack;
        let mut opening = Opening(progress);
        let opener = self.opener(&mut opening);
        let checkpoint = match self.kind {
            // Its findings name parameters already.
            PlaceKind::Opened(checkpoint) => return Ok(checkpoint),
            PlaceKind::Object(object, name) => {
                let len = object.len();
                let opened = opener.open_source(&name, object);
                opened.map_err(|error| named_by_bytes(error, &name, len))?
            }
            PlaceKind::Several(paths) => opener.open_all(&paths)?,
            PlaceKind::Named(path) => match remote::address(&path) {
                Some(url) => opener.open_url(url)?,
                None => opener.open(&path)?,
            },
        };
        let checkpoint = checkpoint.read_as(&rules)?.unwrap_or(checkpoint);
        let unstacked = if unstack { checkpoint.unstacked()? } else { None };
        let checkpoint = unstacked.unwrap_or(checkpoint);
        Ok(checkpoint.word_findings(parameter))
    }

    /// Scans the files.
    pub(crate) fn scan(
        self,
        allow: Vec<String>,
        progress: &mut dyn Progress,
    ) -> Result<Vec<Finding>> {
        if let PlaceKind::Several(_) = &self.kind {
            return Err(Error::refused("a scan takes one file").advice("Scan them one by one."));
        }
        let opener = allow.into_iter().fold(self.opener(progress), Opener::allow);
        let mut findings = match self.kind {
            PlaceKind::Opened(checkpoint) => opener.scan_files(checkpoint.inner().files.clone()),
            PlaceKind::Object(object, name) => opener.scan_source(&name, object),
            PlaceKind::Several(_) => Ok(Vec::new()),
            PlaceKind::Named(path) => match remote::address(&path) {
                Some(url) => opener.scan_url(url),
                None => opener.scan(&path),
            },
        }?;
        findings.iter_mut().for_each(|finding| finding.word(parameter));
        Ok(findings)
    }

    /// Returns the place with options for opening it.
    pub(crate) fn with(self, options: OpenOptions) -> Self {
        Self { options, ..self }
    }

    fn opener<'a>(&self, progress: &'a mut dyn Progress) -> Opener<'a> {
        let OpenOptions { with_files, limit, scratch, .. } = &self.options;
        let opener = with_files
            .iter()
            .fold(Opener::new().progress(progress), |opener, path| opener.with(path));
        let opener = match self.fetch {
            Some(bytes) => opener.fetch_at_most(bytes),
            None => opener,
        };
        let opener = match limit {
            Some(0) => opener.limits(Limits::none()),
            Some(times) => opener.limits(Limits::times(*times)),
            None => opener,
        };
        match scratch {
            Some(bytes) => opener.scratch_at_most(*bytes),
            None => opener,
        }
    }
}

impl OpenOptions {
    /// Returns how a job opens checkpoints.
    pub(crate) fn of_job(self, max_fetch: Option<u64>) -> Reading {
        let Self { with_files: with, limit, scratch, read_as, unstack } = self;
        Reading { with, limit, scratch, read_as, unstack, max_fetch }
    }
}

/// The progress of opening, which counts keys: lets an observer cancel it, without its figures.
struct Opening<'a>(&'a mut dyn Progress);

impl Progress for Opening<'_> {
    fn report(&mut self, _done: u64, _total: u64) -> bool {
        self.0.report(0, 0)
    }
}

/// Adds to an error about short `bytes` that they are read as contents, not as a path.
fn named_by_bytes(error: Error, name: &str, len: u64) -> Error {
    match name == "bytes" && len < LONGEST_PATH {
        true => error.advice("Bytes are the content of a file. A path is a `str` or a `Path`."),
        false => error,
    }
}

/// Bytes of the longest path.
const LONGEST_PATH: u64 = 4_096;

/// Opens a checkpoint.
#[pyfunction]
pub(crate) fn open(
    py: Python<'_>,
    source: Located<'_>,
    options: OpenOptions,
) -> PyResult<NativeCheckpoint> {
    let place = Place::of(&source)?.with(options);
    let opened = Watch::new(None).reading(py, |progress| place.open(progress));
    opened.map(NativeCheckpoint::from)
}

/// Opens a checkpoint with its quantised weights as tensors of `dtype`. Fails if the values of a weight
/// are not known. A checkpoint without such weights is unchanged.
#[pyfunction]
pub(crate) fn dequantized(
    py: Python<'_>,
    source: Located<'_>,
    dtype: String,
) -> PyResult<NativeCheckpoint> {
    let place = Place::of(&source)?;
    let opened = Watch::new(None).reading(py, move |progress| {
        let dtype = DType::from_torch_name(&dtype)
            .filter(|dtype| matches!(dtype, DType::F32 | DType::F16 | DType::BF16))
            .ok_or_else(|| {
                Error::refused(format!("`{dtype}` is not a dtype for dequantised weights"))
                    .expected("float32, float16 or bfloat16")
            })?;
        let opened = place.open(progress)?;
        match opened.dequantised(Some(&dtype))? {
            None => Ok(opened),
            Some((dense, weights)) => complete(&weights).map(|()| dense),
        }
    });
    opened.map(NativeCheckpoint::from)
}

/// Returns the number of bytes in a text such as `20GB`.
#[pyfunction]
pub(crate) fn parse_size(py: Python<'_>, text: &str) -> PyResult<u64> {
    size(text).map_err(|error| raised(py, &error))
}

/// Returns whether a path is an address that Statelens reads itself.
#[pyfunction]
pub(crate) fn is_address(path: &str) -> bool {
    remote::address(Path::new(path)).is_some()
}
