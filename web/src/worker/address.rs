//! Opens the file at an address, with the files next to it that belong to it.

use std::rc::Rc;

use statelens_checkpoint::{Checkpoint, Error, FileSet, Limits, Result};
use statelens_remote::{Address, WantedFiles};

use crate::protocol::opened::Agreed;
use crate::worker::job::Job;
use crate::worker::open_progress::OpenProgress;
use crate::worker::remote::{Begun, RemoteServer, begun};
use crate::worker::sources::Sources;

/// Number of files requested at once.
const AT_ONCE: usize = 6;

/// The files of a remote checkpoint, and the checkpoint itself.
pub(super) struct RemoteCheckpoint {
    pub(super) files: FileSet,
    /// The same files, for sequential reading.
    pub(super) sources: Sources,
    pub(super) checkpoint: Checkpoint,
}

/// Opens the file at an address, with the files next to it that belong to it.
///
/// # Errors
/// Errors of the server or the core.
pub(super) async fn open(url: &str, agreed: Agreed, job: &Job) -> Result<RemoteCheckpoint> {
    let address = Address::parse(url)?;
    let server = Rc::new(RemoteServer::of(&address, agreed.follow));
    let found = found(address, &server, agreed, job).await;
    server.report_fetched(job);
    found
}

async fn found(
    address: Address,
    server: &Rc<RemoteServer>,
    agreed: Agreed,
    job: &Job,
) -> Result<RemoteCheckpoint> {
    let begun = |address| begun(address, server, job, agreed.follow);
    let limits = Limits::times(agreed.times);
    let name = address.name();
    let named = |error: Error| error.in_file(name.as_str());
    let main = begun(address.clone()).await.and_then(|found| found).map_err(named)?;
    let mut files = FileSet::default().noting_missed();
    let mut parts = Vec::new();
    let mut push = |files: &mut FileSet, name: &str, (bytes, file): Begun| {
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
        for some in wanted.next(&files, |name| address.beside(name)).chunks(AT_ONCE) {
            job.check()?;
            let requests: Vec<_> = some.iter().map(|(_, address)| begun(address.clone())).collect();
            for ((name, _), found) in some.iter().zip(all(requests).await) {
                // A file that does not exist is skipped: the checkpoint reports it as missing.
                if let Ok(source) = found.map_err(|error| error.in_file(name.as_str()))? {
                    push(&mut files, name, source);
                }
            }
            server.report_fetched(job);
        }
        if files.count() == before {
            let sources = Sources::of_server(server.clone(), parts);
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
