//! Opens the file at an address, with the files next to it that belong to it.

use std::rc::Rc;

use statelens_checkpoint::{Checkpoint, Error, FileSet, Limits, Result};
use statelens_remote::{Address, WantedFiles};

use crate::open::message::FetchConsent;
use crate::open::worker::progress::OpenProgress;
use crate::worker::job::Job;
use crate::worker::remote::{FirstResponse, RemoteServer, first_request};
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

/// Opens the file at an address, with the files next to it that belong to it.
///
/// # Errors
/// Errors of the server or the core.
pub(crate) async fn open(url: &str, agreed: FetchConsent, job: &Job) -> Result<RemoteCheckpoint> {
    let address = Address::parse(url)?;
    let server = Rc::new(RemoteServer::of(&address, agreed.follow));
    let found = open_set(address, &server, agreed, job).await;
    server.report_fetched(job);
    found
}

async fn open_set(
    address: Address,
    server: &Rc<RemoteServer>,
    agreed: FetchConsent,
    job: &Job,
) -> Result<RemoteCheckpoint> {
    let first_request = |address| first_request(address, server, job, agreed.follow);
    let limits = Limits::times(agreed.times);
    let name = address.name();
    let named = |error: Error| error.in_file(name.as_str());
    let main = first_request(address.clone()).await.and_then(|found| found).map_err(named)?;
    let mut files = FileSet::default().noting_missed();
    let mut parts = Vec::new();
    let mut push = |files: &mut FileSet, name: &str, (bytes, file): FirstResponse| {
        files.push_remote(name, bytes, None);
        parts.push(file);
    };
    push(&mut files, &name, main);
    let mut wanted = WantedFiles::default();
    loop {
        job.check()?;
        let mut open_progress = OpenProgress::new(job, None);
        let opened = statelens_formats::open(files.clone(), &limits, &mut open_progress);
        let before = files.count();
        for some in wanted.next(&files, |name| address.sibling(name)).chunks(PARALLEL_REQUESTS) {
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
