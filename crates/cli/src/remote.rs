//! Checkpoints at addresses: on web servers, and in object stores.

#[cfg(feature = "http")]
mod http;
#[cfg(feature = "object-store")]
pub(crate) mod objects;

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use statelens_checkpoint::{Checkpoint, Error, FileSet, Plan, Progress, ReadAt, Result, Segment};
use statelens_convert::Report;
use statelens_remote::{Address, Meter, Opened, Streamed, Window};

use crate::limits::limits;
use crate::print::{complain, grouped, size_text};
use crate::scratch;
use crate::source;

/// What a command may fetch from web servers, unless `--max-fetch` says otherwise.
const CAP: u64 = 1_000_000_000;
/// Files that a checkpoint may name.
const MOST_FILES: usize = 1_024;

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

/// What was fetched from web servers; one command is one action.
static METER: LazyLock<Arc<Meter>> = LazyLock::new(|| Arc::new(Meter::new(CAP, ADVICE)));

/// Changes what may be fetched.
pub(crate) fn allow(cap: u64) {
    METER.allow(cap);
}

/// The address that an argument is, if it is one.
pub(crate) fn address(argument: &Path) -> Option<&str> {
    let text = argument.to_str()?;
    let lower = text.get(..12.min(text.len())).unwrap_or(text).to_ascii_lowercase();
    SCHEMES.iter().any(|(scheme, _)| lower.starts_with(scheme)).then_some(text)
}

/// Opens a remote checkpoint, with the files beside it that it names, and those in `with`.
pub(crate) fn open(url: &str, with: &[PathBuf], progress: &mut dyn Progress) -> Result<Checkpoint> {
    gather(url, with, progress)?.1
}

/// The files of a remote checkpoint: itself, those beside it that it names, and those in `with`.
pub(crate) fn files(url: &str, with: &[PathBuf], progress: &mut dyn Progress) -> Result<FileSet> {
    gather(url, with, progress).map(|(files, _)| files)
}

fn gather(
    url: &str,
    with: &[PathBuf],
    progress: &mut dyn Progress,
) -> Result<(FileSet, Result<Checkpoint>)> {
    let place = Place::of(url)?;
    let window = Arc::new(Window::default());
    let mut files = FileSet::default().noting_missed().with_scratch(scratch::on_disk());
    let add = |files: &mut FileSet, name: String, place: &Place| -> Result<Option<Error>> {
        let found = place.open(&window, files.count()).map_err(|error| error.in_file(&*name))?;
        Ok(match found {
            Ok(source) => {
                files.push(name, source);
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
                let place = Place::of(url)?;
                if let Some(error) = add(&mut files, place.name(), &place)? {
                    return Err(error);
                }
            }
            None => {
                for (_, file) in source::open_alone(path)?.iter() {
                    files.push(file.name.clone(), file.source.clone());
                }
            }
        }
    }
    let mut tried = BTreeSet::new();
    loop {
        let opened = statelens_formats::open(files.clone(), limits(), progress);
        let before = files.count();
        for name in files.missed() {
            if files.count() < MOST_FILES
                && tried.insert(name.clone())
                && let Some(place) = place.beside(&name)
            {
                // A file that is not there is missing, which the checkpoint says by itself.
                add(&mut files, name, &place)?;
            }
        }
        if files.count() == before {
            return Ok((files, opened));
        }
    }
}

/// Refuses a plan that takes more from web servers than may be fetched.
pub(crate) fn check_cap(plan: &Plan) -> Result<()> {
    if METER.requests() == 0 {
        return Ok(());
    }
    let mut bytes = 0u64;
    for segment in plan.segments() {
        if let Segment::Data(data) = segment {
            let tensor = plan.source.tensor(data.tensor)?;
            bytes = bytes.saturating_add(tensor.nbytes().unwrap_or(0));
        }
    }
    let cap = METER.cap();
    if METER.fetched().saturating_add(bytes) <= cap {
        return Ok(());
    }
    Err(Error::limit(format!(
        "this would fetch about {}, and a command may fetch {}",
        size_text(bytes),
        size_text(cap)
    ))
    .advice(ADVICE))
}

/// Writes the files of a plan as objects of a store.
#[cfg(feature = "object-store")]
pub(crate) fn write(
    paths: &[PathBuf],
    plan: Plan,
    replace: bool,
    judge: &dyn Fn(&Report) -> Result<()>,
    progress: &mut dyn Progress,
) -> Result<Report> {
    let places: Vec<objects::Place> = paths
        .iter()
        .map(|path| match Place::of(&path.to_string_lossy())? {
            Place::Object(place) => Ok(place),
            Place::Web(address) => Err(no_writing(&address.to_string())),
        })
        .collect::<Result<_>>()?;
    let mut sink = objects::ObjectSink::new(&plan, places, replace)?;
    let report = statelens_convert::run_blocking(plan, &mut sink, progress)?;
    judge(&report)?;
    sink.finish()?;
    Ok(report)
}

/// Writes the files of a plan as objects of a store, which this program was built without.
#[cfg(not(feature = "object-store"))]
pub(crate) fn write(
    paths: &[PathBuf],
    _: Plan,
    _: bool,
    _: &dyn Fn(&Report) -> Result<()>,
    _: &mut dyn Progress,
) -> Result<Report> {
    let path = paths.first().map(|path| path.to_string_lossy()).unwrap_or_default();
    match Place::of(&path)? {
        Place::Web(_) => Err(no_writing(&path)),
    }
}

fn no_writing(address: &str) -> Error {
    Error::refused("files are not written to web servers")
        .in_file(address)
        .advice("Write to a file, or to an object store (s3://, gs://, az://).")
}

/// Says what was fetched, if something was, to a person.
pub(crate) fn tell() {
    if METER.requests() > 0 && std::io::stderr().is_terminal() {
        let (bytes, requests) = (size_text(METER.fetched()), METER.requests());
        let word = if requests == 1 { "request" } else { "requests" };
        complain(&format!("fetched {bytes} in {} {word}", grouped(requests)));
    }
}

/// What to do about the limit.
const ADVICE: &str = "Allow more with --max-fetch, as in --max-fetch 20GB.";

/// Where a file is.
enum Place {
    #[cfg_attr(not(feature = "http"), allow(dead_code, reason = "told that it is not built in"))]
    Web(Address),
    #[cfg(feature = "object-store")]
    Object(objects::Place),
}

impl Place {
    fn of(url: &str) -> Result<Self> {
        let lower = url.to_ascii_lowercase();
        let needs = SCHEMES.iter().find(|(scheme, _)| lower.starts_with(scheme));
        match needs {
            Some((_, "http")) => Address::parse(url).map(Self::Web),
            #[cfg(feature = "object-store")]
            Some(_) => objects::Place::parse(url).map(Self::Object),
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

    fn beside(&self, name: &str) -> Option<Self> {
        match self {
            Self::Web(address) => address.beside(name).map(Self::Web),
            #[cfg(feature = "object-store")]
            Self::Object(place) => place.beside(name).map(Self::Object),
        }
    }

    /// `Ok(Err(…))` where there is no such file.
    fn open(&self, window: &Arc<Window>, number: usize) -> Result<Result<Arc<dyn ReadAt>>> {
        let streamed = |Opened { bulk, structure }| -> Arc<dyn ReadAt> {
            Arc::new(Streamed::new(bulk, structure, window.clone(), number))
        };
        match self {
            #[cfg(feature = "http")]
            Self::Web(address) => Ok(http::open(address, &METER)?.map(streamed)),
            #[cfg(not(feature = "http"))]
            Self::Web(_) => Err(not_built("http")),
            #[cfg(feature = "object-store")]
            Self::Object(place) => Ok(place.open()?.map(streamed)),
        }
    }
}

#[cfg(any(not(feature = "http"), not(feature = "object-store")))]
fn not_built(feature: &str) -> Error {
    Error::unsupported("this program was built without reading such addresses")
        .advice(format!("Build it with `--features {feature}`, or fetch the file first."))
}
