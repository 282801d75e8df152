//! Checkpoints at addresses: on web servers and in object stores.

#[cfg(feature = "http")]
mod http;
#[cfg(feature = "http")]
mod hub;
#[cfg(feature = "object-store")]
mod objects;

use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(feature = "http")]
pub(crate) use hub::{Hashing, HubCheckpoint, HubSources, blob_hash};
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
const SCHEMES: [(&str, &str); 11] = [
    ("hf://", "http"),
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

/// Returns the argument as an address, if it is one. A page of the Hugging Face Hub needs no scheme,
/// unless there is a file with that name.
pub fn address(argument: &Path) -> Option<&str> {
    let text = argument.to_str()?;
    let starts =
        |start: &str| text.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start));
    let is_page = || PAGES.iter().any(|host| starts(host)) && !argument.exists();
    let is_address = SCHEMES.iter().any(|(scheme, _)| starts(scheme)) || is_page();
    is_address.then_some(text)
}

/// The beginnings of pages that are copied without their scheme.
const PAGES: [&str; 2] = ["huggingface.co/", "hf.co/"];

/// Returns the address with the current commit for one in a repository on the Hugging Face Hub;
/// `None` for all others.
#[cfg(feature = "http")]
pub(crate) fn pinned(url: &str) -> Result<Option<String>> {
    if !hub::is_hub(url) || hub::is_pinned(url) {
        return Ok(None);
    }
    let (repository, location) = hub::HubRepository::open(url, &Arc::new(Meter::new(CAP, "")))?;
    let slash = if url.ends_with('/') { "/" } else { "" };
    Ok(Some(format!("{}{slash}", repository.pinned(&location))))
}

/// Returns `None`: this program was built without requests.
#[cfg(not(feature = "http"))]
pub(crate) fn pinned(_: &str) -> Result<Option<String>> {
    Ok(None)
}

/// Returns the address of the config of the model next to a checkpoint in a repository on the Hugging
/// Face Hub: `config.json`, `params.yaml` or `params.json`. `None` without such a file, and for all
/// other addresses.
pub fn sibling_config(url: &str) -> Option<String> {
    #[cfg(feature = "http")]
    if hub::is_hub(url) {
        let opened = hub::HubRepository::open(url, &Arc::new(Meter::new(CAP, ""))).ok()?;
        let path = opened.0.config(&opened.1.path)?;
        return Some(opened.1.with_path(path).to_string());
    }
    let _ = url;
    None
}

/// Reads a whole file at an address, of at most `most` bytes.
///
/// # Errors
/// Fails if the file is longer or can't be read.
pub fn read(url: &str, most: u64) -> Result<Vec<u8>> {
    let source = Location::of(url)?.open(&Arc::new(Meter::new(CAP, "")))??;
    if source.len() > most {
        return Err(Error::limit(format!("more than {}", size_text(most))).in_file(url));
    }
    let mut bytes = vec![0; source.len() as usize];
    source.read_at(0, &mut bytes).map_err(|error| error.in_file(url))?;
    Ok(bytes)
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

    /// Finds the checkpoint in a repository on the Hugging Face Hub; `None` for other addresses.
    #[cfg(feature = "http")]
    pub(crate) fn on_hub(&self, url: &str) -> Result<Option<hub::HubCheckpoint>> {
        if !hub::is_hub(url) {
            return Ok(None);
        }
        let (repository, location) = hub::HubRepository::open(url, &self.meter)?;
        repository.checkpoint(&location.path, &self.meter).map(Some)
    }

    /// Returns the files of a folder of a repository; `None` for a file, and for other addresses.
    #[cfg(feature = "http")]
    pub(crate) fn hub_folder(&self, url: &str) -> Result<Option<FileSet>> {
        if !hub::is_hub(url) {
            return Ok(None);
        }
        let (repository, location) = hub::HubRepository::open(url, &self.meter)?;
        let (files, file) = repository.folder(&location.path, &self.meter)?;
        Ok(file.is_none().then_some(files))
    }

    #[cfg(feature = "http")]
    pub(crate) fn gather_on_hub(
        &self,
        found: hub::HubCheckpoint,
        with: &[PathBuf],
        progress: &mut dyn Progress,
    ) -> Result<(FileSet, Result<Checkpoint>)> {
        let mut files = found.files.with_scratch(self.scratch.clone());
        self.add_further(&mut files, &Arc::new(Window::default()), with)?;
        let opened = files::open_or_enter(files.clone(), &self.limits, progress);
        let opened = opened.map(|mut checkpoint| {
            checkpoint.format.facts.extend(found.facts);
            checkpoint
        });
        Ok((files, opened))
    }

    /// Returns the files of a folder at an address, with their names relative to it, and the name of
    /// the file if the address is that of one: under a prefix of an object store, or in a repository
    /// on the Hugging Face Hub. The folder of a file on a web server can't be listed, so the file
    /// comes with those of its checkpoint, and with those named in `likely` that exist.
    pub(crate) fn folder(
        &self,
        url: &str,
        likely: &[&str],
        progress: &mut dyn Progress,
    ) -> Result<(FileSet, Option<String>)> {
        let place = Location::of(url.trim_end_matches('/'))?;
        #[cfg(feature = "http")]
        if let Location::Hub(url) = &place {
            let (repository, location) = hub::HubRepository::open(url, &self.meter)?;
            return repository.folder(&location.path, &self.meter);
        }
        let window = Arc::new(Window::default());
        let mut files = FileSet::default();
        #[cfg(feature = "object-store")]
        if let Location::Object(object) = &place {
            let file = if url.ends_with('/') { None } else { object.open()?.ok() };
            let folder = match file {
                Some(_) => object.folder(),
                None => objects::Prefix::parse(&format!("{}/", url.trim_end_matches('/')))?,
            };
            for (name, source) in folder.files()? {
                let streamed = Streamed::new(source.clone(), window.clone(), files.count());
                files.push_remote(name, source, Some(Arc::new(streamed)));
            }
            return Ok((files, file.map(|_| place.name())));
        }
        let name = place.name();
        for (_, file) in self.files(url, &[], progress)?.iter() {
            files.push_file(file.clone());
        }
        let known: Vec<String> = files.names().map(|(_, name)| name.to_owned()).collect();
        for other in likely.iter().filter(|other| known.iter().all(|known| known != *other)) {
            if let Some(place) = place.sibling(other)
                && let Ok(source) = place.open(&self.meter)?
            {
                let streamed = Streamed::new(source.clone(), window.clone(), files.count());
                files.push_remote(*other, source, Some(Arc::new(streamed)));
            }
        }
        Ok((files, Some(name)))
    }

    /// Adds the files in `with`, at paths and addresses.
    fn add_further(
        &self,
        files: &mut FileSet,
        window: &Arc<Window>,
        with: &[PathBuf],
    ) -> Result<()> {
        for path in with {
            let Some(url) = address(path) else {
                for (_, file) in files::open_alone(path)?.iter() {
                    files.push_file(file.clone());
                }
                continue;
            };
            let place = Location::of(url)?;
            let found = place.open(&self.meter).and_then(|found| found);
            let source = found.map_err(|error| error.in_file(place.name()))?;
            let streamed = Streamed::new(source.clone(), window.clone(), files.count());
            files.push_remote(place.name(), source, Some(Arc::new(streamed)));
        }
        Ok(())
    }

    fn gather(
        &self,
        url: &str,
        with: &[PathBuf],
        progress: &mut dyn Progress,
    ) -> Result<(FileSet, Result<Checkpoint>)> {
        #[cfg(feature = "http")]
        if let Some(found) = self.on_hub(url)? {
            return self.gather_on_hub(found, with, progress);
        }
        #[cfg(feature = "object-store")]
        let prefix = objects::prefix::open(url, &self.scratch)?;
        #[cfg(not(feature = "object-store"))]
        let prefix: Option<FileSet> = None;
        let (place, mut files) = match prefix {
            // All its files are known.
            Some(files) => (None, files),
            None => {
                let files = FileSet::default().noting_missed();
                (Some(Location::of(url)?), files.with_scratch(self.scratch.clone()))
            }
        };
        let window = Arc::new(Window::default());
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
        if let Some(place) = &place
            && let Some(error) = add(&mut files, place.name(), place)?
        {
            #[cfg(feature = "object-store")]
            let error = objects::prefix::nothing_there(error, url);
            return Err(error);
        }
        self.add_further(&mut files, &window, with)?;
        let mut wanted = WantedFiles::default();
        loop {
            let opened = files::open_or_enter(files.clone(), &self.limits, progress);
            let before = files.count();
            let sibling = |name: &str| place.as_ref()?.sibling(name);
            for (name, place) in wanted.next(&files, sibling) {
                // Missing files are reported by the checkpoint itself.
                add(&mut files, name, &place)?;
            }
            if files.count() == before {
                return Ok((files, opened));
            }
        }
    }
}

/// Lists the files under a prefix of an object store or in a folder of a repository on the Hugging
/// Face Hub: addresses, lengths in bytes, and tags.
pub fn listed(url: &str) -> Result<Vec<(String, u64, Option<String>)>> {
    match Location::of(url.trim_end_matches('/'))? {
        #[cfg(feature = "object-store")]
        Location::Object(_) => {
            let found = objects::Prefix::parse(url)?.list()?.into_iter();
            Ok(found.map(|(address, object)| (address, object.size, object.e_tag)).collect())
        }
        #[cfg(feature = "http")]
        Location::Hub(url) => {
            let (repository, location) =
                hub::HubRepository::open(&url, &Arc::new(Meter::new(CAP, "")))?;
            let listed =
                repository.list(&location.path).into_iter().map(|(path, size, version)| {
                    let at = repository.pinned(&location.with_path(path));
                    (at.to_string(), size, version)
                });
            Ok(listed.collect())
        }
        Location::Web(_) => Err(no_listing(url)),
    }
}

/// Returns the place of a job under a prefix of an object store.
pub(crate) fn job_store(url: &str) -> Result<Box<dyn JobStore>> {
    match Location::of(url.trim_end_matches('/'))? {
        #[cfg(feature = "object-store")]
        Location::Object(_) => Ok(Box::new(objects::Prefix::parse(url)?)),
        #[cfg(feature = "http")]
        Location::Hub(_) => Err(no_writing(url)),
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
    /// The address of a file, a folder or a repository on the Hugging Face Hub.
    #[cfg(feature = "http")]
    Hub(String),
    #[cfg(feature = "object-store")]
    Object(objects::Location),
}

impl Location {
    fn of(url: &str) -> Result<Self> {
        let lower = url.to_ascii_lowercase();
        #[cfg(feature = "http")]
        if hub::is_hub(url) {
            return Ok(Self::Hub(url.to_owned()));
        }
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
            #[cfg(feature = "http")]
            Self::Hub(url) => url.rsplit('/').next().unwrap_or(url).to_owned(),
            #[cfg(feature = "object-store")]
            Self::Object(place) => place.name(),
        }
    }

    fn sibling(&self, name: &str) -> Option<Self> {
        match self {
            Self::Web(address) => address.sibling(name).map(Self::Web),
            #[cfg(feature = "http")]
            Self::Hub(_) => None,
            #[cfg(feature = "object-store")]
            Self::Object(place) => place.sibling(name).map(Self::Object),
        }
    }

    /// Opens the file; `Ok(Err(…))` if it does not exist.
    fn open(&self, meter: &Arc<Meter>) -> Result<Result<Arc<dyn ReadAt>>> {
        match self {
            #[cfg(feature = "http")]
            Self::Web(address) => http::open(address, meter),
            #[cfg(feature = "http")]
            Self::Hub(url) => {
                let (repository, location) = hub::HubRepository::open(url, meter)?;
                Ok(repository.file(&location.path, meter))
            }
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

/// A part of an object that was sent.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct SentPart {
    /// The name that the store gave it.
    pub(crate) name: String,
    /// Number of bytes.
    pub(crate) len: u64,
    /// Their CRC-32C.
    pub(crate) sum: u32,
}

#[cfg(feature = "object-store")]
pub(crate) use objects::bucket;

/// Uploads of objects, by one process or by several.
#[cfg(feature = "object-store")]
pub(crate) mod uploads {
    use std::path::PathBuf;

    use statelens_checkpoint::{Plan, Progress, Result};
    use statelens_convert::RunReport;

    use super::objects::{Location, ObjectSink, PartRange};
    use super::{SentPart, SharedRange, no_writing};

    pub(crate) use super::objects::{
        abort_upload, begin_upload, complete_upload, exists_at, remove_object, send_part,
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
            #[cfg(feature = "http")]
            super::Location::Hub(url) => Err(no_writing(&url)),
        };
        let locations = paths.iter().map(location).collect::<Result<_>>()?;
        ObjectSink::new(plan, locations, replace, warn)
    }

    /// Runs a plan with a range for each file; also returns the parts.
    pub(crate) fn send(
        plan: Plan,
        ranges: Vec<SharedRange>,
        progress: &mut dyn Progress,
    ) -> Result<(RunReport, Vec<Vec<SentPart>>)> {
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

    use super::{Location, SentPart, SharedRange, no_writing};

    /// Returns the error for an output at this address.
    pub(crate) fn absent<T>(url: &str) -> Result<T> {
        Location::of(url)?;
        Err(no_writing(url))
    }

    pub(crate) fn send(
        _: Plan,
        ranges: Vec<SharedRange>,
        _: &mut dyn Progress,
    ) -> Result<(RunReport, Vec<Vec<SentPart>>)> {
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

    pub(crate) fn remove_object(url: &str) -> Result<()> {
        absent(url)
    }
}
