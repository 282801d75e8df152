//! A repository at a commit, and the checkpoints in it.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use statelens_checkpoint::{Error, ErrorKind, FileSet, ReadAt, Result};
use statelens_formats::sets::{CheckpointFiles, sort_by_name};
use statelens_formats::{has_known_extension, is_named_as_weights};
use statelens_remote::hub::{HubFile, HubListing, HubLocation, is_commit};
use statelens_remote::{Meter, Streamed, Window};

use super::cache::HubCache;
use super::client::HubClient;
use super::hashed::{HashedFile, HubSources};
use super::settings::HubSettings;
use crate::files::{self, FileSource};

/// Maximum number of files of a folder that are opened with a checkpoint.
const MAX_FILES: usize = 1 << 14;

/// Depth to which a repository is searched for checkpoints.
const MAX_DEPTH: usize = 2;

/// Files that describe the model, of which the first in the folder counts.
const CONFIGS: [&str; 3] = ["config.json", "params.yaml", "params.json"];

/// Time for which the files of a revision are kept: the steps of one action read one commit.
const KEPT: Duration = Duration::from_secs(3);

/// Number of lists that are kept.
const MAX_KEPT: usize = 16;

static LISTS: Mutex<VecDeque<(Instant, String, Arc<HubRepository>)>> = Mutex::new(VecDeque::new());

/// A repository at a commit.
#[derive(Debug)]
pub(crate) struct HubRepository {
    /// The repository, at the revision that was requested.
    location: HubLocation,
    listing: HubListing,
    /// The folder with those files of the commit that are in the cache.
    snapshot: Option<PathBuf>,
    /// The cache of the repository, which may have files of other commits with the same contents.
    cache: Option<HubCache>,
    client: HubClient,
    /// Why no request can be made, or why none was answered.
    offline: Option<Error>,
}

/// A checkpoint of a repository.
pub(crate) struct HubCheckpoint {
    /// The files of its folder, opened at its main file.
    pub(crate) files: FileSet,
    /// The path of the main file, if all of its files are in the cache.
    pub(crate) on_disk: Option<PathBuf>,
    /// The files in the cache, and those to fetch.
    pub(crate) sources: HubSources,
    /// Repository, revision and commit, by name.
    pub(crate) facts: Vec<(String, String)>,
}

impl HubRepository {
    /// Finds the files of a repository, with one request, or without any if the cache has the list.
    pub(crate) fn open(url: &str, meter: &Arc<Meter>) -> Result<(Arc<Self>, HubLocation)> {
        let settings = Arc::new(HubSettings::of_environment()?);
        let location = HubLocation::parse(url, &settings.endpoint)
            .ok_or_else(|| Error::refused("this is not an address of the Hub").in_file(url))??;
        let key = format!("{} {}", settings.endpoint.info(&location), settings.offline);
        let mut lists = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
        lists.retain(|(since, ..)| since.elapsed() < KEPT);
        let token = &settings.token;
        let is_this = |one: &(Instant, String, Arc<Self>)| {
            one.1 == key && one.2.client.settings.token == *token
        };
        if let Some((_, _, known)) = lists.iter().find(|one| is_this(one)) {
            return Ok((known.clone(), location));
        }
        drop(lists);
        let found = Arc::new(Self::find(&location.with_path(""), settings, meter)?);
        let mut lists = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
        lists.truncate(MAX_KEPT - 1);
        lists.push_front((Instant::now(), key, found.clone()));
        Ok((found, location))
    }

    fn find(
        location: &HubLocation,
        settings: Arc<HubSettings>,
        meter: &Arc<Meter>,
    ) -> Result<Self> {
        let cache = settings.cache.as_ref().map(|folder| HubCache::new(folder, location));
        let client = HubClient { settings };
        let of_cache = |listing: HubListing, offline: Option<Error>, client: HubClient| {
            let cache = cache.clone();
            let snapshot = cache.as_ref().and_then(|cache| cache.snapshot(&listing.commit));
            Self { location: location.clone(), listing, snapshot, cache, client, offline }
        };
        // The files of a commit never change.
        let known = cache.as_ref().filter(|_| is_commit(location.revision()));
        if let Some(listing) = known.and_then(|cache| cache.tree(location.revision())) {
            let offline = client.settings.offline.then(switched_off);
            return Ok(of_cache(listing, offline, client));
        }
        let error = match client.settings.offline {
            true => switched_off(),
            false => match client.listing(location, meter) {
                Ok(listing) => return Ok(of_cache(listing, None, client)),
                Err(error) => error,
            },
        };
        // As the client does, what the cache holds is read if the Hub gives nothing.
        let gives_up = ["hub-not-found", "fetch-cap"].contains(&error.code())
            || error.kind() == ErrorKind::Cancelled;
        let listing = cache.as_ref().filter(|_| !gives_up).and_then(|cache| {
            let commit = cache.commit()?;
            cache.tree(&commit).or_else(|| cache.files(&commit))
        });
        match listing {
            Some(listing) => Ok(of_cache(listing, Some(error), client)),
            None => Err(error.in_file(location.to_string())),
        }
    }

    /// Returns the place in the repository at its commit, for an address that never changes.
    pub(crate) fn pinned(&self, location: &HubLocation) -> HubLocation {
        location.renamed(self.id()).at(&self.listing.commit)
    }

    /// Opens the checkpoint at a path: a file, or the only one in a folder.
    pub(crate) fn checkpoint(&self, path: &str, meter: &Arc<Meter>) -> Result<HubCheckpoint> {
        let named = self.location.with_path(path).to_string();
        let (folder, wanted) = self.place(path)?;
        let (files, sources) = self.files(folder, meter)?;
        let weights =
            |name: &str| name.split('/').count() <= MAX_DEPTH + 1 && is_named_as_weights(name);
        let mut found = sort_by_name(&files, &weights);
        if found.is_empty() {
            found = sort_by_name(&files, &has_known_extension);
        }
        let set = match &wanted {
            Some(name) => found.into_iter().find(|set| set.members.contains(name)),
            None => {
                let main = match found.as_slice() {
                    [] => Err(files::without_checkpoint(&files)),
                    found => files::main_of(&files, found),
                };
                let main = main.map_err(|error| error.in_file(named.clone()))?;
                found.into_iter().find(|set| set.main == main)
            }
        };
        let main = wanted.or_else(|| set.as_ref().map(|set| set.main.clone())).unwrap_or_default();
        let id = files.names().find(|(_, name)| *name == main).map(|(id, _)| id);
        let Some(id) = id else {
            return Err(self.not_cached(&self.location.with_path(join(folder, &main))));
        };
        let on_disk = self.on_disk(folder, &main, set.as_ref());
        Ok(HubCheckpoint { files: files.opened_at(id), on_disk, sources, facts: self.facts() })
    }

    /// Returns the files of a folder with their names relative to it, and the name of the file that
    /// the path means, if it is not that of a folder.
    pub(crate) fn folder(
        &self,
        path: &str,
        meter: &Arc<Meter>,
    ) -> Result<(FileSet, Option<String>)> {
        let (folder, wanted) = self.place(path)?;
        Ok((self.files(folder, meter)?.0, wanted))
    }

    /// Opens a file.
    pub(crate) fn file(&self, path: &str, meter: &Arc<Meter>) -> Result<Arc<dyn ReadAt>> {
        let file = self.listing.file(path).ok_or_else(|| self.absent(path))?;
        self.source(file, meter)
            .unwrap_or_else(|| Err(self.not_cached(&self.location.with_path(path))))
    }

    /// Returns the path of the config in the folder of a checkpoint, if there is one.
    pub(crate) fn config(&self, path: &str) -> Option<String> {
        let (folder, _) = self.place(path).ok()?;
        let mut names = CONFIGS.iter().map(|name| join(folder, name));
        names.find(|name| self.listing.file(name).is_some())
    }

    /// Returns the paths, lengths and checksums of the files below a folder.
    pub(crate) fn list(&self, folder: &str) -> Vec<(String, u64, Option<String>)> {
        let below = self.listing.below(folder.trim_end_matches('/'));
        below.map(|(_, file)| (file.path.clone(), file.size, file.version())).collect()
    }

    fn id(&self) -> &str {
        match self.listing.id.as_str() {
            "" => &self.location.id,
            id => id,
        }
    }

    /// Returns the folder that a path means, and the name of the file in it.
    fn place<'a>(&self, path: &'a str) -> Result<(&'a str, Option<String>)> {
        if path.is_empty() {
            return Ok(("", None));
        }
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        // The name of a TensorFlow checkpoint is the start of those of its files.
        for end in ["", ".index"] {
            if self.listing.file(&format!("{path}{end}")).is_some() {
                return Ok((folder, Some(format!("{name}{end}"))));
            }
        }
        match self.listing.below(path).next() {
            Some(_) => Ok((path, None)),
            None => Err(self.absent(path)),
        }
    }

    /// Opens the files of a folder that are in the cache, or can be requested. Also returns them with
    /// their hashes.
    fn files(&self, folder: &str, meter: &Arc<Meter>) -> Result<(FileSet, HubSources)> {
        let mut files = FileSet::default();
        let mut sources = HubSources::default();
        let window = Arc::new(Window::default());
        for (number, (name, file)) in self.listing.below(folder).take(MAX_FILES).enumerate() {
            if let Some(path) = self.held(file) {
                let source = Arc::new(FileSource::new(&path)?);
                sources.cached.push(source.clone());
                files.push(name, source);
            } else if let Some(source) = self.source(file, meter) {
                let source = Arc::new(HashedFile::new(source?, name));
                sources.fetched.push(source.clone());
                let streamed = Streamed::new(source.clone(), window.clone(), number);
                files.push_remote(name, source, Some(Arc::new(streamed)));
            }
        }
        Ok((files, sources))
    }

    /// Opens a file; `None` if it is not in the cache, and no request can be made.
    fn source(&self, file: &HubFile, meter: &Arc<Meter>) -> Option<Result<Arc<dyn ReadAt>>> {
        if let Some(path) = self.held(file) {
            return Some(FileSource::new(&path).map(|file| Arc::new(file) as Arc<dyn ReadAt>));
        }
        let location = self.location.renamed(self.id());
        let commit = &self.listing.commit;
        self.offline.is_none().then(|| self.client.file(&location, commit, file, meter))
    }

    /// Returns the file in the cache, or its contents under another commit.
    fn held(&self, file: &HubFile) -> Option<PathBuf> {
        self.cached(&file.path).or_else(|| self.cache.as_ref()?.blob(file))
    }

    /// Returns the file of this commit in the cache, if it is there.
    fn cached(&self, path: &str) -> Option<PathBuf> {
        Some(self.snapshot.as_ref()?.join(path)).filter(|path| path.is_file())
    }

    /// Returns the path of a main file in the cache, if the cache has everything that belongs to it.
    fn on_disk(&self, folder: &str, main: &str, set: Option<&CheckpointFiles>) -> Option<PathBuf> {
        let members = set.map_or(&[][..], |set| &set.members);
        let is_there = |name: &str| self.cached(&join(folder, name)).is_some();
        let config = CONFIGS.iter().map(|name| join(folder, name));
        let mut config = config.filter(|path| self.listing.file(path).is_some());
        let has_all = is_there(main)
            && members.iter().all(|name| is_there(name))
            && config.all(|path| self.cached(&path).is_some());
        has_all.then(|| self.cached(&join(folder, main))).flatten()
    }

    fn facts(&self) -> Vec<(String, String)> {
        let kind = self.location.kind.prefix();
        let mut facts = vec![("Repository".to_owned(), format!("{kind}{}", self.id()))];
        let revision = self.location.revision();
        if revision != self.listing.commit {
            facts.push(("Revision".to_owned(), revision.to_owned()));
        }
        facts.push(("Commit".to_owned(), self.listing.commit.clone()));
        if let Some(why) = &self.offline {
            facts.push(("Local cache".to_owned(), format!("yes: {}", why.what())));
        }
        facts
    }

    fn absent(&self, path: &str) -> Error {
        let refusal = statelens_remote::hub::HubRefusal {
            status: 404,
            code: "EntryNotFound".to_owned(),
            ..Default::default()
        };
        let location = self.location.with_path(path);
        match &self.offline {
            None => refusal.error(&self.client.settings.endpoint, &location),
            Some(_) => self.not_cached(&location),
        }
    }

    /// Returns the error for a file that is not in the cache while no request can be made.
    fn not_cached(&self, location: &HubLocation) -> Error {
        let why = self.offline.as_ref().map_or("", |why| why.what());
        Error::io(format!("this file is not in the local cache, and {why}"))
            .coded("hub-offline")
            .in_file(location.to_string())
            .advice("Download it with `hf download`, or try again with a connection.")
    }
}

fn switched_off() -> Error {
    Error::io("requests are switched off by `HF_HUB_OFFLINE`")
        .coded("hub-offline")
        .advice("Remove the variable, or download the repository with `hf download` first.")
}

fn join(folder: &str, name: &str) -> String {
    match folder {
        "" => name.to_owned(),
        folder => format!("{folder}/{name}"),
    }
}
