//! Checkpoints at addresses: on web servers and in object stores.

#[cfg(feature = "http")]
mod http;
#[cfg(feature = "object-store")]
mod objects;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use statelens_checkpoint::size_text;
use statelens_checkpoint::{
    Advice, Checkpoint, Error, FileSet, Limits, Plan, Progress, ReadAt, Result, Scratch, Segment,
};
pub use statelens_remote::Meter;
use statelens_remote::{Address, Streamed, WantedFiles, Window};

use crate::files;
use crate::job_store::JobStore;

/// Default limit on the bytes fetched from web servers.
pub const CAP: u64 = 1_000_000_000;

/// Schemes of addresses, and the feature that each needs.
const SCHEMES: [(&str, &str); 10] = [
    ("https://", "http"),
    ("http://", "http"),
    ("s3://", "object-store"),
    ("s3a://", "object-store"),
    ("gs://", "object-store"),
    ("az://", "object-store"),
    ("azure://", "object-store"),
    ("abfs://", "object-store"),
    ("abfss://", "object-store"),
    ("adl://", "object-store"),
];

/// Returns the argument as an address, if it is one.
pub fn address(argument: &Path) -> Option<&str> {
    let text = argument.to_str()?;
    let lower = text.get(..12.min(text.len())).unwrap_or(text).to_ascii_lowercase();
    SCHEMES.iter().any(|(scheme, _)| lower.starts_with(scheme)).then_some(text)
}

/// Opens remote checkpoints and counts the bytes fetched for them.
#[derive(Debug, Clone)]
pub struct RemoteOpener {
    /// Counts the bytes fetched from web servers and limits them.
    pub meter: Arc<Meter>,
    /// Limits on what may be spent on a file.
    pub limits: Limits,
    /// Temporary space for reordering tensors.
    pub scratch: Arc<dyn Scratch>,
}

impl RemoteOpener {
    /// Opens a checkpoint with the files that it refers to and those in `with`.
    pub fn open(
        &self,
        url: &str,
        with: &[PathBuf],
        progress: &mut dyn Progress,
    ) -> Result<Checkpoint> {
        self.gather(url, with, progress)?.1
    }

    /// Returns the files of a checkpoint: itself, the files that it refers to, and those in `with`.
    pub fn files(
        &self,
        url: &str,
        with: &[PathBuf],
        progress: &mut dyn Progress,
    ) -> Result<FileSet> {
        self.gather(url, with, progress).map(|(files, _)| files)
    }

    /// Refuses a plan that would fetch more from web servers than is allowed; `advice` says how to
    /// allow more.
    pub fn check_cap(&self, plan: &Plan, advice: impl Into<Advice>) -> Result<()> {
        if self.meter.requests() == 0 {
            return Ok(());
        }
        let mut bytes = 0u64;
        for segment in plan.segments() {
            if let Segment::Data(data) = segment {
                let tensor = plan.source.tensor(data.tensor)?;
                bytes = bytes.saturating_add(tensor.nbytes().unwrap_or(0));
            }
        }
        let cap = self.meter.cap();
        if self.meter.fetched().saturating_add(bytes) <= cap {
            return Ok(());
        }
        Err(Error::limit(format!(
            "this would fetch about {}, and the limit of a command is {}",
            size_text(bytes),
            size_text(cap)
        ))
        .advice(advice))
    }

    fn gather(
        &self,
        url: &str,
        with: &[PathBuf],
        progress: &mut dyn Progress,
    ) -> Result<(FileSet, Result<Checkpoint>)> {
        let place = Location::of(url)?;
        let window = Arc::new(Window::default());
        let mut files = FileSet::default().noting_missed().with_scratch(self.scratch.clone());
        let add = |files: &mut FileSet, name: String, place: &Location| -> Result<Option<Error>> {
            let found = place.open(&self.meter).map_err(|error| error.in_file(&*name))?;
            Ok(match found {
                Ok(source) => {
                    let streamed = Streamed::new(source.clone(), window.clone(), files.count());
                    files.push_remote(name, source, Some(Arc::new(streamed)));
                    None
                }
                Err(error) => Some(error.in_file(name)),
            })
        };
        if let Some(error) = add(&mut files, place.name(), &place)? {
            return Err(error);
        }
        for path in with {
            match address(path) {
                Some(url) => {
                    let place = Location::of(url)?;
                    if let Some(error) = add(&mut files, place.name(), &place)? {
                        return Err(error);
                    }
                }
                None => {
                    for (_, file) in files::open_alone(path)?.iter() {
                        files.push_file(file.clone());
                    }
                }
            }
        }
        let mut wanted = WantedFiles::default();
        loop {
            let opened = files::open_or_enter(files.clone(), &self.limits, progress);
            let before = files.count();
            for (name, place) in wanted.next(&files, |name| place.sibling(name)) {
                // Missing files are reported by the checkpoint itself.
                add(&mut files, name, &place)?;
            }
            if files.count() == before {
                return Ok((files, opened));
            }
        }
    }
}

/// Lists the objects under a prefix of an object store: addresses, lengths in bytes, and tags.
#[cfg(feature = "object-store")]
pub fn listed(url: &str) -> Result<Vec<(String, u64, Option<String>)>> {
    let found = match Location::of(url.trim_end_matches('/'))? {
        Location::Object(_) => objects::Prefix::parse(url)?.list()?,
        Location::Web(_) => return Err(no_listing(url)),
    };
    Ok(found.into_iter().map(|(address, object)| (address, object.size, object.e_tag)).collect())
}

/// Fails: this program was built without support for object stores.
#[cfg(not(feature = "object-store"))]
pub fn listed(url: &str) -> Result<Vec<(String, u64, Option<String>)>> {
    Location::of(url)?;
    Err(no_listing(url))
}

/// Returns the place of a job under a prefix of an object store.
pub(crate) fn job_store(url: &str) -> Result<Box<dyn JobStore>> {
    match Location::of(url.trim_end_matches('/'))? {
        #[cfg(feature = "object-store")]
        Location::Object(_) => Ok(Box::new(objects::Prefix::parse(url)?)),
        Location::Web(_) => Err(no_writing(url)),
    }
}

fn no_listing(address: &str) -> Error {
    Error::refused("folders of web servers can't be listed")
        .in_file(address)
        .advice("Name the files, or an object store (s3://, gs://, az://).")
}

fn no_writing(address: &str) -> Error {
    Error::refused("files are not written to web servers")
        .in_file(address)
        .advice("Write to a file, or to an object store (s3://, gs://, az://).")
}

/// The location of a file.
enum Location {
    #[cfg_attr(not(feature = "http"), allow(dead_code, reason = "used in an error message only"))]
    Web(Address),
    #[cfg(feature = "object-store")]
    Object(objects::Location),
}

impl Location {
    fn of(url: &str) -> Result<Self> {
        let lower = url.to_ascii_lowercase();
        let needs = SCHEMES.iter().find(|(scheme, _)| lower.starts_with(scheme));
        match needs {
            Some((_, "http")) => Address::parse(url).map(Self::Web),
            #[cfg(feature = "object-store")]
            Some(_) => objects::Location::parse(url).map(Self::Object),
            #[cfg(not(feature = "object-store"))]
            Some(_) => Err(not_built("object-store").in_file(url)),
            None => Err(Error::unsupported("this is not an address").in_file(url)),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Web(address) => address.name(),
            #[cfg(feature = "object-store")]
            Self::Object(place) => place.name(),
        }
    }

    fn sibling(&self, name: &str) -> Option<Self> {
        match self {
            Self::Web(address) => address.sibling(name).map(Self::Web),
            #[cfg(feature = "object-store")]
            Self::Object(place) => place.sibling(name).map(Self::Object),
        }
    }

    /// Opens the file; `Ok(Err(…))` if it does not exist.
    fn open(&self, meter: &Arc<Meter>) -> Result<Result<Arc<dyn ReadAt>>> {
        match self {
            #[cfg(feature = "http")]
            Self::Web(address) => http::open(address, meter),
            #[cfg(not(feature = "http"))]
            Self::Web(_) => Err(not_built("http")),
            #[cfg(feature = "object-store")]
            Self::Object(place) => place.open(),
        }
    }
}

#[cfg(any(not(feature = "http"), not(feature = "object-store")))]
fn not_built(feature: &str) -> Error {
    Error::unsupported("this program was built without support for such addresses")
        .advice(format!("Build it with `--features {feature}`, or fetch the file first."))
}

/// The parts of an object that a process sends.
#[cfg_attr(
    not(feature = "object-store"),
    allow(dead_code, reason = "used in an error message only")
)]
pub(crate) struct SharedRange {
    pub(crate) url: String,
    /// The id of the upload.
    pub(crate) id: String,
    /// Number of the first part.
    pub(crate) first: usize,
    /// Bytes of each part but the last.
    pub(crate) part: u64,
    /// Bytes at the start that are made last.
    pub(crate) head: u64,
}

/// Uploads of objects, by one process or by several.
#[cfg(feature = "object-store")]
pub(crate) mod uploads {
    use std::path::PathBuf;

    use statelens_checkpoint::{Plan, Progress, Result};
    use statelens_convert::RunReport;

    use super::objects::{Location, ObjectSink, PartRange};
    use super::{SharedRange, no_writing};

    pub(crate) use super::objects::{
        abort_upload, begin_upload, complete_upload, exists_at, send_part,
    };

    /// Returns a sink for the files of a plan at the addresses `paths`. Existing objects are replaced
    /// only if `replace` is set. `warn` reports data that a store may have kept from a cancelled upload.
    pub(crate) fn sink(
        plan: &Plan,
        paths: &[PathBuf],
        replace: bool,
        warn: fn(&str),
    ) -> Result<ObjectSink> {
        let location = |path: &PathBuf| match super::Location::of(&path.to_string_lossy())? {
            super::Location::Object(location) => Ok(location),
            super::Location::Web(address) => Err(no_writing(&address.to_string())),
        };
        let locations = paths.iter().map(location).collect::<Result<_>>()?;
        ObjectSink::new(plan, locations, replace, warn)
    }

    /// Runs a plan with a range for each file; also returns the names of the parts.
    pub(crate) fn send(
        plan: Plan,
        ranges: Vec<SharedRange>,
        progress: &mut dyn Progress,
    ) -> Result<(RunReport, Vec<Vec<String>>)> {
        let range = |range: SharedRange| {
            let location = Location::parse(&range.url)?;
            let SharedRange { id, first, part, head, .. } = range;
            Ok(PartRange { location, id, first, part, head })
        };
        let ranges = ranges.into_iter().map(range).collect::<Result<_>>()?;
        let mut sink = ObjectSink::of_ranges(ranges, |_| {})?;
        let report = crate::executor::run(plan, &mut sink, progress)?;
        Ok((report, sink.finish_ranges()?))
    }
}

/// Fails: this program was built without support for object stores.
#[cfg(not(feature = "object-store"))]
pub(crate) mod uploads {
    use std::sync::Arc;

    use statelens_checkpoint::{Plan, Progress, ReadAt, Result};
    use statelens_convert::RunReport;

    use super::{Location, SharedRange, no_writing};

    /// Returns the error for an output at this address.
    pub(crate) fn absent<T>(url: &str) -> Result<T> {
        Location::of(url)?;
        Err(no_writing(url))
    }

    pub(crate) fn send(
        _: Plan,
        ranges: Vec<SharedRange>,
        _: &mut dyn Progress,
    ) -> Result<(RunReport, Vec<Vec<String>>)> {
        absent(ranges.first().map_or("", |range| &range.url))
    }

    pub(crate) fn begin_upload(url: &str) -> Result<String> {
        absent(url)
    }

    pub(crate) fn exists_at(url: &str) -> Result<Option<u64>> {
        absent(url)
    }

    pub(crate) fn send_part(url: &str, _: &str, _: usize, _: Vec<u8>) -> Result<String> {
        absent(url)
    }

    pub(crate) fn complete_upload(
        url: &str,
        _: &str,
        _: Vec<String>,
        _: u64,
    ) -> Result<Arc<dyn ReadAt>> {
        absent(url)
    }

    pub(crate) fn abort_upload(url: &str, _: &str) -> Result<()> {
        absent(url)
    }
}
