//! Opening checkpoints.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use statelens_checkpoint::{
    Error, FileSet, Finding, Limits, Progress, ReadAt, Result, Setting, Unwatched, advice,
};
use statelens_convert::Merging;
use statelens_describe::CheckpointSummary;
use statelens_formats::ScanOptions;
use statelens_remote::Meter;

use crate::files::PathText as _;
use crate::files::{self, OpenedFiles};
use crate::listings::Listings;
use crate::remote::{self, RemoteOpener};
use crate::scratch::{Disk, MOST};
use crate::{AllCores, Checkpoint};

/// Opens a checkpoint on disk: a file, a folder that holds one, or a shard or index of a set. Its
/// format is recognised by content. Reads the structure, never the weights.
pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint> {
    Opener::new().open(path)
}

/// Opens a checkpoint at an address: `https://`, `hf://owner/name` or a page of the Hugging Face Hub,
/// or, with the feature `object-store`, `s3://`, `gs://` and `az://`. Fetches only the bytes that are
/// read, up to [`remote::CAP`].
pub fn open_url(url: &str) -> Result<Checkpoint> {
    Opener::new().open_url(url)
}

/// Returns what a file would do when it is loaded with the usual libraries: every call of a pickle
/// in it that is not known to be harmless, and other code that it contains. Runs none of it.
pub fn scan(path: impl AsRef<Path>) -> Result<Vec<Finding>> {
    Opener::new().scan(path)
}

/// Options for opening checkpoints.
///
/// ```no_run
/// let checkpoint = statelens::Opener::new()
///     .with("weights/model-00002-of-00002.safetensors")
///     .fetch_at_most(20_000_000_000)
///     .open_url("https://example.org/weights/model-00001-of-00002.safetensors")?;
/// # Ok::<(), statelens::Error>(())
/// ```
pub struct Opener<'a> {
    with: Vec<PathBuf>,
    limits: Limits,
    fetch: u64,
    scratch: u64,
    allow: BTreeSet<String>,
    progress: Option<&'a mut dyn Progress>,
}

impl Default for Opener<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> Opener<'a> {
    /// Returns the options that [`open`] uses.
    pub fn new() -> Self {
        Self {
            with: Vec::new(),
            limits: Limits::default(),
            fetch: remote::CAP,
            scratch: MOST,
            allow: BTreeSet::new(),
            progress: None,
        }
    }

    /// Adds a file that the checkpoint may link to. Files in its own folder are found without this.
    #[must_use]
    pub fn with(mut self, path: impl Into<PathBuf>) -> Self {
        self.with.push(path.into());
        self
    }

    /// Sets the limits for reading a file, which hold whatever the file claims.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets how many bytes may be fetched from web servers to open the checkpoint, and then by each
    /// call that reads it.
    #[must_use]
    pub fn fetch_at_most(mut self, bytes: u64) -> Self {
        self.fetch = bytes;
        self
    }

    /// Sets how many bytes on disk may be used for reordering tensors.
    #[must_use]
    pub fn scratch_at_most(mut self, bytes: u64) -> Self {
        self.scratch = bytes;
        self
    }

    /// Sets a callback that receives progress, in keys, and can cancel.
    #[must_use]
    pub fn progress(mut self, progress: &'a mut dyn Progress) -> Self {
        self.progress = Some(progress);
        self
    }

    /// Regards a global that a pickle names, such as `package.module.Class`, as harmless. Only scans
    /// use it.
    #[must_use]
    pub fn allow(mut self, name: impl Into<String>) -> Self {
        self.allow.insert(name.into());
        self
    }

    /// Opens a checkpoint as [`open`] does.
    pub fn open(mut self, path: impl AsRef<Path>) -> Result<Checkpoint> {
        let mut nobody = Unwatched;
        let progress = self.progress.take().unwrap_or(&mut nobody);
        self.sources().open_on_disk(path.as_ref(), progress)
    }

    /// Opens the checkpoint that is divided into these files: shards of a set, in any folders, or
    /// checkpoints with different keys, which are merged.
    pub fn open_all(mut self, paths: &[PathBuf]) -> Result<Checkpoint> {
        let mut nobody = Unwatched;
        let progress = self.progress.take().unwrap_or(&mut nobody);
        let sources = self.sources();
        let opened = sources.open_all(paths, progress)?;
        let is_remote = paths.iter().any(|path| remote::address(path).is_some());
        Ok(if is_remote { opened.metered(sources.remote.meter) } else { opened })
    }

    /// Opens a checkpoint as [`open_url`] does.
    pub fn open_url(mut self, url: &str) -> Result<Checkpoint> {
        let mut nobody = Unwatched;
        let progress = self.progress.take().unwrap_or(&mut nobody);
        let sources = self.sources();
        let opened = sources.open(address(url)?, progress)?;
        Ok(opened.metered(sources.remote.meter))
    }

    /// Opens a checkpoint from any source. `name` is its file name: the format is recognised by
    /// content, but errors about files that are not checkpoints depend on the name, too.
    pub fn open_source(mut self, name: &str, source: impl ReadAt + 'static) -> Result<Checkpoint> {
        let files = FileSet::single(name, source).with_scratch(self.disk());
        let mut nobody = Unwatched;
        let progress = self.progress.take().unwrap_or(&mut nobody);
        Ok(Checkpoint::new(statelens_formats::open(files, &self.limits, progress)?, Vec::new()))
    }

    /// Scans a file as [`scan`] does. Progress is in bytes.
    pub fn scan(self, path: impl AsRef<Path>) -> Result<Vec<Finding>> {
        let files = files::open(path.as_ref(), &self.with)?.files;
        self.scan_files(files)
    }

    /// Scans a file at an address, as [`scan`] does for a file on disk.
    pub fn scan_url(mut self, url: &str) -> Result<Vec<Finding>> {
        let mut nobody = Unwatched;
        let progress = self.progress.take().unwrap_or(&mut nobody);
        let options = ScanOptions { allow: std::mem::take(&mut self.allow) };
        self.sources().scan(address(url)?, &HashSet::new(), &options, progress)
    }

    /// Scans the file `name` from any source, as [`scan`] does for a file on disk.
    pub fn scan_source(self, name: &str, source: impl ReadAt + 'static) -> Result<Vec<Finding>> {
        self.scan_files(FileSet::single(name, source))
    }

    /// Scans files as [`scan`] does.
    pub fn scan_files(self, files: FileSet) -> Result<Vec<Finding>> {
        let mut nobody = Unwatched;
        let progress = self.progress.unwrap_or(&mut nobody);
        let options = ScanOptions { allow: self.allow };
        statelens_formats::scan_on(&AllCores, files, &self.limits, &options, progress)
    }

    pub(crate) fn sources(&self) -> SourceOpener {
        let advice = advice!["Allow more with ", Setting::MaxFetch, "."];
        let remote = RemoteOpener {
            meter: Arc::new(Meter::new(self.fetch, advice)),
            limits: self.limits.clone(),
            scratch: self.disk(),
        };
        SourceOpener::new(&self.with, remote)
    }

    fn disk(&self) -> Arc<Disk> {
        Arc::new(Disk::new(self.scratch))
    }
}

/// Returns the address as a path; fails if it is not an address.
fn address(url: &str) -> Result<&Path> {
    let path = Path::new(url);
    match remote::address(path) {
        Some(_) => Ok(path),
        None => Err(Error::refused("this is not an address").in_file(url)),
    }
}

/// Returns whether a name is that of an index of shards.
fn is_index(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "json" || end == "index")
}

/// Opens checkpoints on disk and at addresses, one after another, within one limit on fetching.
/// Lists each folder once.
#[derive(Debug, Clone)]
pub struct SourceOpener {
    with: Vec<PathBuf>,
    remote: RemoteOpener,
    listings: Listings,
}

impl SourceOpener {
    /// Returns an opener for checkpoints that may refer to the files in `with`. The limits and the
    /// scratch space of `remote` also hold for those on disk.
    pub fn new(with: &[PathBuf], remote: RemoteOpener) -> Self {
        Self { with: with.to_vec(), remote, listings: Listings::default() }
    }

    /// Returns the opener of remote checkpoints, whose limits apply to all.
    pub(crate) fn remote(&self) -> &RemoteOpener {
        &self.remote
    }

    /// Opens the checkpoint at a path or an address.
    pub fn open(&self, source: &Path, progress: &mut dyn Progress) -> Result<Checkpoint> {
        let Some(url) = remote::address(source) else {
            return self.open_on_disk(source, progress);
        };
        #[cfg(feature = "http")]
        if let Some(found) = self.remote.on_hub(url)? {
            return self.open_on_hub(found, progress);
        }
        Ok(self.remote.open(url, &self.with, progress)?.into())
    }

    /// Returns the files of a folder in a repository on the Hugging Face Hub, with their names
    /// relative to it; `None` for a file, and for other addresses and paths.
    pub fn hub_folder(&self, source: &Path) -> Result<Option<FileSet>> {
        #[cfg(feature = "http")]
        if let Some(url) = remote::address(source) {
            return self.remote.hub_folder(url);
        }
        let _ = source;
        Ok(None)
    }

    /// Opens a checkpoint of a repository: on disk, if the cache of the Hub's client has all of it.
    #[cfg(feature = "http")]
    fn open_on_hub(
        &self,
        mut found: remote::HubCheckpoint,
        progress: &mut dyn Progress,
    ) -> Result<Checkpoint> {
        let Some(path) = found.on_disk.take() else {
            let mut sources = std::mem::take(&mut found.sources);
            sources.has_others = !self.with.is_empty();
            let opened = self.remote.gather_on_hub(found, &self.with, progress)?.1?;
            return Ok(Checkpoint::from(opened).on_hub(sources));
        };
        let RemoteOpener { limits, scratch, .. } = &self.remote;
        let (with, listings) = (&self.with, &self.listings);
        let opened = files::open_checkpoint(&path, with, listings, limits, scratch, progress)?;
        let (mut checkpoint, sources) = opened;
        checkpoint.format.facts.extend(found.facts);
        Ok(Checkpoint::new(checkpoint, sources))
    }

    fn open_on_disk(&self, path: &Path, progress: &mut dyn Progress) -> Result<Checkpoint> {
        let RemoteOpener { limits, scratch, .. } = &self.remote;
        let (with, listings) = (&self.with, &self.listings);
        let opened = files::open_checkpoint(path, with, listings, limits, scratch, progress)?;
        Ok(Checkpoint::new(opened.0, opened.1))
    }

    /// Opens the checkpoint that is divided into these files, as [`Opener::open_all`] does.
    pub fn open_all(&self, paths: &[PathBuf], progress: &mut dyn Progress) -> Result<Checkpoint> {
        let mut left: Vec<PathBuf> = paths.to_vec();
        // An index refers to its shards, but they do not refer to it.
        left.sort_by_key(|path| !is_index(path));
        let mut parts: Vec<(PathBuf, Checkpoint)> = Vec::new();
        while !left.is_empty() {
            let path = left.remove(0);
            let with = [&self.with[..], &left].concat();
            let part = Self { with, ..self.clone() }.open(&path, progress)?;
            let used = CheckpointSummary::of(part.inner()).files;
            left.retain(|other| {
                let name = other.file_name().unwrap_or_default().to_string_lossy();
                !used.iter().any(|(known, _)| *known == name)
            });
            parts.push((path, part));
        }
        match parts.len() {
            0 => Err(Error::refused("there are no files to open")),
            1 => Ok(parts.remove(0).1),
            _ => self.merged(parts, progress),
        }
    }

    /// Merges checkpoints that have no keys in common.
    fn merged(
        &self,
        parts: Vec<(PathBuf, Checkpoint)>,
        progress: &mut dyn Progress,
    ) -> Result<Checkpoint> {
        let limits = &self.remote.limits;
        let (mut merging, mut sources) = (Merging::new(limits), Vec::new());
        for (path, part) in parts {
            let name = path.to_text();
            if remote::address(&path).is_some() {
                return Err(Error::unsupported("only files on disk can be merged")
                    .in_file(name)
                    .advice("Download it first."));
            }
            let files = part.inner().files.clone();
            sources.extend(part.sources().iter().cloned());
            drop(part);
            merging
                .add(&name, files, &mut |files| statelens_formats::open(files, limits, progress))?;
        }
        let (checkpoint, collisions) = merging.finish()?;
        match collisions.first() {
            None => Ok(Checkpoint::new(checkpoint, sources)),
            Some(one) => Err(Error::refused(format!(
                "{} in several of the files: `{}` is in {} and in {}",
                if collisions.len() == 1 { "1 key is" } else { "keys are" },
                one.key,
                one.first,
                one.last
            ))
            .advice("Open the files one by one.")),
        }
    }

    /// Opens the checkpoint in files that are open already.
    pub fn open_files(
        &self,
        opened: &OpenedFiles,
        progress: &mut dyn Progress,
    ) -> Result<Checkpoint> {
        let RemoteOpener { limits, scratch, .. } = &self.remote;
        let files = files::side_by_side(&opened.files, scratch);
        let checkpoint = statelens_formats::open(files, limits, progress)?;
        Ok(Checkpoint::new(checkpoint, opened.sources()))
    }

    /// Scans the file at a path or an address, as [`scan`] does. The other files of its set that are
    /// in `listed` are left out: they are scanned by themselves.
    pub fn scan(
        &self,
        source: &Path,
        listed: &HashSet<&Path>,
        options: &ScanOptions,
        progress: &mut dyn Progress,
    ) -> Result<Vec<Finding>> {
        let files = match remote::address(source) {
            Some(url) => self.remote.files(url, &self.with, progress)?,
            None => files::open_listed(source, &self.with, &self.listings)?.files,
        };
        let is_listed = |name: &str| listed.contains(&*source.with_file_name(name));
        let limits = &self.remote.limits;
        statelens_formats::scan_set(&AllCores, files, &is_listed, limits, options, progress)
    }
}
