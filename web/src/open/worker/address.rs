//! Opens the file at an address, with the files next to it that belong to it.

use std::rc::Rc;
use std::sync::Arc;

use statelens_checkpoint::{Checkpoint, Error, FileSet, Limits, ReadAt, Result, listed};
use statelens_compare::runs::weights_of;
use statelens_formats::cerebras::s3::{self, METADATA};
use statelens_formats::is_named_as_weights;
use statelens_formats::sets::sort_by_name;
use statelens_remote::hub::{Endpoint, HubListing, HubLocation, HubToken};
use statelens_remote::{Address, WantedFiles};

use crate::open::message::FetchConsent;
use crate::open::worker::progress::OpenProgress;
use crate::worker::hub::{HubAccess, hub_listing};
use crate::worker::job::Job;
use crate::worker::remote::{FirstResponse, RemoteServer, first_request, listed_file};
use crate::worker::sources::Sources;

/// Number of files requested at once.
const PARALLEL_REQUESTS: usize = 6;

/// The files of a remote checkpoint, and the checkpoint itself.
pub(crate) struct RemoteCheckpoint {
    pub(crate) files: FileSet,
    /// The same files, for sequential reading.
    pub(crate) sources: Sources,
    pub(crate) checkpoint: Checkpoint,
}

/// Names of the facts about a repository.
pub(super) const FACTS: [&str; 3] = ["Repository", "Revision", "Commit"];

/// Maximum depth of the folders of a repository that are searched for checkpoints.
const MAX_DEPTH: usize = 2;

/// The name of a model's config.
const CONFIG: &str = "config.json";

/// A repository of the Hub at a commit, and the place in it that was requested.
pub(crate) struct HubRepository {
    endpoint: Endpoint,
    location: HubLocation,
    listing: HubListing,
    access: HubAccess,
}

/// Opens the file at an address, with the files next to it that belong to it.
///
/// # Errors
/// Errors of the server or the core.
pub(crate) async fn open(
    url: &str,
    agreed: FetchConsent,
    token: &str,
    job: &Job,
) -> Result<RemoteCheckpoint> {
    let Some(repository) = HubRepository::find(url, token, job).await? else {
        let address = Address::parse_prefix(url)?;
        let server = Rc::new(RemoteServer::of(&address, agreed.follow, None));
        let found = open_set(address, &server, agreed, None, job).await;
        server.report_fetched(job);
        return found;
    };
    let HubRepository { location, listing, .. } = &repository;
    let main = repository.main_file()?;
    let folder = main.rfind('/').map_or("", |end| &main[..=end]);
    let config = listing.file(&format!("{folder}{CONFIG}")).map(|_| CONFIG);
    let address = repository.address(&main)?;
    let access = Some(repository.access.clone());
    let server = Rc::new(RemoteServer::of(&address, agreed.follow, access));
    let found = open_set(address, &server, agreed, config, job).await;
    server.report_fetched(job);
    let mut found = found.map_err(|error| error.in_file(location.to_string()))?;
    let listed = |name: &str| listing.file(&format!("{folder}{name}"))?.sha256.clone();
    let hashes = found.files.iter().map(|(_, file)| listed(&file.name)).collect();
    found.sources = found.sources.with_listed_hashes(hashes);
    found.checkpoint.format.facts.extend([
        (FACTS[0].to_owned(), repository.id().to_owned()),
        (FACTS[1].to_owned(), location.revision().to_owned()),
        (FACTS[2].to_owned(), listing.commit.clone()),
    ]);
    Ok(found)
}

impl HubRepository {
    /// Requests the files of the repository that an address names; `None` for another address.
    ///
    /// # Errors
    /// Why the Hub refuses it.
    pub(crate) async fn find(url: &str, token: &str, job: &Job) -> Result<Option<Self>> {
        let endpoint = Endpoint::default();
        let Some(location) = HubLocation::parse(url, &endpoint).transpose()? else {
            return Ok(None);
        };
        let access = HubAccess(HubToken::new(token)?);
        let listing = hub_listing(&endpoint, &location, access.0.as_ref(), job).await?;
        Ok(Some(Self { endpoint, location, listing, access }))
    }

    /// Returns the files of the folder, with names relative to it, and the name of the file that was
    /// requested, if it is not a folder. No file is requested before it is read.
    pub(crate) fn folder(&self, follow: bool, job: &Job) -> Result<(FileSet, Option<&str>)> {
        let path = self.location.path.as_str();
        let (folder, only) = match self.listing.file(path) {
            Some(_) => path.rsplit_once('/').map_or(("", path), |(folder, name)| (folder, name)),
            None => (path, ""),
        };
        let mut files = FileSet::default();
        for (name, file) in self.listing.below(folder) {
            let address = self.address(&file.path)?;
            let access = Some(self.access.clone());
            let source = listed_file(address, file.size, access, follow, job);
            files.push_remote(name, source, None);
        }
        Ok((files, Some(only).filter(|only| !only.is_empty())))
    }

    /// Returns the id, which differs from the requested one if the repository was renamed.
    fn id(&self) -> &str {
        let id = [&self.listing.id, &self.location.id].into_iter().find(|id| !id.is_empty());
        id.map_or("", String::as_str)
    }

    /// Returns the address of a file at the commit.
    fn address(&self, path: &str) -> Result<Address> {
        let location = self.location.renamed(self.id());
        Address::exact(&self.endpoint.resolve(&location, &self.listing.commit, path))
    }

    /// Returns the path of the file to open: the one that was named, or the main file of the only
    /// checkpoint in the folder, by the names of the files.
    fn main_file(&self) -> Result<String> {
        let folder = self.location.path.as_str();
        if self.listing.file(folder).is_some() {
            return Ok(folder.to_owned());
        }
        let mut files = FileSet::default();
        for (name, file) in self.listing.below(folder) {
            if name.matches('/').count() <= MAX_DEPTH {
                let unread = Error::io("this file was not fetched");
                files.push(name, Arc::new(UnreadFile(file.size, unread)));
            }
        }
        let found = sort_by_name(&files, &is_named_as_weights);
        let mains: Vec<&str> = found.iter().map(|set| set.main.as_str()).collect();
        let error = |what: String| {
            Error::refused(what)
                .coded("hub-no-file")
                .in_file(self.location.to_string())
                .advice("Add the name of a file to the address.")
        };
        let main = match (mains.as_slice(), weights_of(mains.iter().copied())) {
            (_, Some(main)) => Ok(main),
            ([one], None) => Ok(*one),
            ([], None) if files.count() == 0 => {
                Err(error("there is no such file or folder at this revision".to_owned()))
            }
            ([], None) => {
                Err(error("no file here is named as a checkpoint that Statelens reads".to_owned()))
            }
            (several, None) => Err(error(format!(
                "there are {} checkpoints here: {}",
                several.len(),
                listed(several, 8)
            ))),
        };
        main.map(
            |name| if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") },
        )
    }
}

/// A file of which only the length is known, and why it can't be read.
#[derive(Debug)]
struct UnreadFile(u64, Error);

impl ReadAt for UnreadFile {
    fn len(&self) -> u64 {
        self.0
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<()> {
        Err(self.1.clone())
    }
}

/// Returns the error for an object whose key has a segment that browsers resolve.
fn dots() -> Error {
    Error::unsupported("browsers can\u{2019}t request keys with a segment `.` or `..`")
        .advice("Open the checkpoint with the command, by its address s3://…")
}

/// Opens the file at an address, with the files that it refers to, and one more that is there.
async fn open_set(
    address: Address,
    server: &Rc<RemoteServer>,
    agreed: FetchConsent,
    more: Option<&str>,
    job: &Job,
) -> Result<RemoteCheckpoint> {
    let first_request = |address| first_request(address, server, job, agreed.follow);
    let limits = Limits::times(agreed.times);
    let is_prefix = address.is_prefix();
    let not_a_file = address.not_a_file();
    let address = address.without_slash();
    let mut name = address.name();
    let mut main = match is_prefix {
        true => Ok(Err(not_a_file)),
        false => first_request(address.clone()).await,
    };
    // The prefix of a Cerebras checkpoint is not a file, and its `__METADATA__` names the objects. The
    // library distinguishes `key/` from `key`; most tools do not.
    let prefixes = if is_prefix { &["//", "/"][..] } else { &["/"] };
    if matches!(main, Ok(Err(_))) && s3::may_be_prefix(&name) {
        for slashes in prefixes {
            let metadata = format!("{name}{slashes}{METADATA}");
            if let Some(inside) = address.object(&metadata)
                && let found @ Ok(Ok(_)) = first_request(inside).await
            {
                (name, main) = (metadata, found);
                break;
            }
        }
    }
    let main = main.and_then(|found| found).map_err(|error| error.in_file(name.as_str()))?;
    let mut files = FileSet::default().noting_missed();
    let mut parts = Vec::new();
    let mut push = |files: &mut FileSet, name: &str, (bytes, file): FirstResponse| {
        files.push_remote(name, bytes, None);
        parts.push(file);
    };
    push(&mut files, &name, main);
    if let Some(top) = name.strip_suffix(METADATA) {
        let main = files.main()?;
        let metadata = files.read_vec(main, 0, files.len(main))?;
        // Objects of unknown length are requested when opening the checkpoint looks for them.
        for (object, len) in s3::objects(&metadata, None).unwrap_or_default() {
            let object = format!("{top}{object}");
            let Some(len) = len else { continue };
            match address.object(&object) {
                Some(address) => {
                    let source = listed_file(address, len, None, agreed.follow, job);
                    push(&mut files, &object, (source.clone(), Some(source)));
                }
                None => push(&mut files, &object, (Arc::new(UnreadFile(len, dots())), None)),
            }
        }
    }
    if let Some((name, address)) = more.and_then(|name| Some((name, address.sibling(name)?))) {
        let found = first_request(address).await.map_err(|error| error.in_file(name))?;
        found.into_iter().for_each(|source| push(&mut files, name, source));
    }
    let mut wanted = WantedFiles::default();
    loop {
        job.check()?;
        let mut open_progress = OpenProgress::new(job, None);
        let opened = statelens_formats::open(files.clone(), &limits, &mut open_progress);
        let before = files.count();
        // Only the keys of objects may have empty segments.
        let near = |file: &str| match name.ends_with(METADATA) {
            true => address.object(file),
            false => address.sibling(file),
        };
        for some in wanted.next(&files, near).chunks(PARALLEL_REQUESTS) {
            job.check()?;
            let requests: Vec<_> =
                some.iter().map(|(_, address)| first_request(address.clone())).collect();
            for ((name, _), found) in some.iter().zip(all(requests).await) {
                // A file that does not exist is skipped: the checkpoint reports it as missing.
                if let Ok(source) = found.map_err(|error| error.in_file(name.as_str()))? {
                    push(&mut files, name, source);
                }
            }
            server.report_fetched(job);
        }
        if files.count() == before {
            let sources = Sources::from_server(server.clone(), parts);
            return Ok(RemoteCheckpoint { files, sources, checkpoint: opened? });
        }
    }
}

/// Awaits all futures, which run concurrently.
async fn all<T>(futures: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut waiting: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        let mut ready = true;
        for (future, done) in &mut waiting {
            if done.is_none()
                && let std::task::Poll::Ready(value) = future.as_mut().poll(context)
            {
                *done = Some(value);
            }
            ready &= done.is_some();
        }
        if ready { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    waiting.into_iter().filter_map(|(_, done)| done).collect()
}
