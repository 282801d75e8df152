//! Reads everything of the open checkpoint once: checksums, the values of tensors, and their
//! hashes. The results are kept with the session, so that the table, the findings and shared
//! summaries include them.

use std::rc::Rc;

use statelens_checkpoint::{Error, FileId, FileSet, Result};
use statelens_formats::checks;
use statelens_inspect::verify::{Manifest, Verification};
use statelens_inspect::weights::Measured;
use statelens_tensor::Machine as _;
use wasm_bindgen::JsValue;
use web_sys::File;

use crate::protocol::FromWorker;
use crate::protocol::conversion::JobProgress;
use crate::protocol::job::JobKind;
use crate::protocol::verify::{VerifyReply, VerifyReport};
use crate::protocol::weights::WeightsReply;
use crate::text;
use crate::worker::blob::BlobSource;
use crate::worker::command_line::command_line;
use crate::worker::job::Job;
use crate::worker::measurements::SharedMeasurements;
use crate::worker::opened::OpenCheckpoint;
use crate::worker::reading::drive;
use crate::worker::session::SharedSession;
use crate::worker::{files_of, now, weights};

/// Maximum size of a manifest in bytes.
const MAX_MANIFEST_SIZE: u64 = 256 << 20;

/// Begins verifying, with the manifest that may be sent with the message; `None` stops it.
pub(super) fn handle_request(
    session: &SharedSession,
    job: Job,
    finite: Option<bool>,
    data: &JsValue,
) {
    let Some(finite) = finite else { return session.borrow().jobs.stop(JobKind::Verify) };
    let (open, found) = {
        let session = session.borrow();
        let Some(open) = session.open.clone() else { return };
        (open, session.found.clone())
    };
    let manifest = files_of(data).into_iter().next();
    let session = Rc::downgrade(session);
    job.clone().spawn(async move {
        let mut ended = verify(&open, &found, manifest, finite, &job).await;
        // A scan running at the same time posts its own results.
        let scans = session
            .upgrade()
            .is_some_and(|session| session.borrow().jobs.is_running(JobKind::Scan));
        if ended.is_ok() && job.check().is_ok() && !scans {
            // The scan reads only what verifying skips, such as quantised blocks, which is little.
            match weights::scan(&open, &found, &job).await {
                Ok(scanned) => {
                    if let Some(session) = session.upgrade() {
                        session.borrow_mut().scanned();
                    }
                    weights::post_reply(&job, WeightsReply::Scanned(Ok(Box::new(scanned))));
                }
                Err(error) => ended = Err(error),
            }
        }
        if job.check().is_ok() {
            let ended = ended.map(Box::new).map_err(|error| text::error(&error));
            post_reply(&job, VerifyReply::Ended(ended));
        }
        open.report_fetched(&job);
    });
}

fn post_reply(job: &Job, reply: VerifyReply) {
    job.post(&FromWorker::Verify(reply));
}

async fn verify(
    open: &OpenCheckpoint,
    found: &SharedMeasurements,
    manifest: Option<File>,
    finite: bool,
    job: &Job,
) -> Result<VerifyReport> {
    let began = now();
    let checkpoint = &open.checkpoint;
    let name = manifest.as_ref().map(File::name);
    let manifest = manifest.map(read).transpose()?;
    let checks = checks(checkpoint, &open.limits)?;
    let mut verification = Verification::new(checkpoint.clone(), checks, true).with_statistics();
    let keep = |verification: &mut Verification| {
        let mut found = found.borrow_mut();
        for (id, summary) in verification.take_summaries() {
            found.unread.remove(&id);
            found.measured.insert(id, Measured::of(&summary).into());
        }
    };
    drive(&mut verification, &[&open.sources], job, |verification, time| {
        keep(verification);
        if time {
            let (done, total) = verification.progress();
            let millis = now() - began;
            post_reply(
                job,
                VerifyReply::Progress(JobProgress { done, total, millis, key: String::new() }),
            );
            open.report_fetched(job);
        }
    })
    .await?;
    keep(&mut verification);
    let verified = verification.hashes().iter().map(|(id, hash)| (*id, hash.clone()));
    found.borrow_mut().sha256.extend(verified);
    let (bytes, _) = verification.progress();
    let report = verification.into_report(manifest.as_ref())?;
    Ok(VerifyReport {
        report,
        finite,
        command: command(&checkpoint.files, name, finite),
        bytes,
        millis: now() - began,
    })
}

fn read(file: File) -> Result<Manifest> {
    let (name, len) = (file.name(), file.size() as u64);
    if len > MAX_MANIFEST_SIZE {
        return Err(Error::refused("this is not a manifest").in_file(&name));
    }
    let set = FileSet::single(&name, BlobSource::alone(file));
    let bytes = set.read_vec(FileId(0), 0, len)?;
    Manifest::parse(&bytes).map_err(|error| error.in_file(&name))
}

/// Returns the equivalent command, quoted for a shell.
fn command(files: &FileSet, manifest: Option<String>, finite: bool) -> String {
    let name = files.main().map(|id| files.name(id).to_owned()).unwrap_or_default();
    let mut words = vec!["verify".to_owned(), name];
    words.extend(manifest.into_iter().flat_map(|name| ["--manifest".to_owned(), name]));
    if finite {
        words.push("--finite".to_owned());
    }
    command_line(&words)
}
