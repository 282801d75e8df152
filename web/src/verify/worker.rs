//! Reads everything of the open checkpoint once: checksums, the values of tensors, and their
//! hashes. The results are kept with the session, so that the table, the findings and shared
//! summaries include them.

mod hashes;

use std::rc::Rc;

use statelens_checkpoint::{Error, FileId, FileSet, Result, Unwatched};
use statelens_compare::verify::{Manifest, Verification};
use statelens_formats::checks;
use statelens_quantised::scale_faults;
use statelens_tensor::{Machine as _, Need};
use wasm_bindgen::JsValue;
use web_sys::File;

use crate::protocol::FromWorker;
use crate::protocol::assist::AssistedPass;
use crate::protocol::job::JobKind;
use crate::protocol::task::TaskResult;
use crate::scan;
use crate::verify::message::{VerifyReport, VerifyRequest};
use crate::worker::blob::BlobSource;
use crate::worker::command_line::command_line;
use crate::worker::job::Job;
use crate::worker::measurements::SharedMeasurements;
use crate::worker::native_hashes::{self, MAX_WAITING, NativeHashes};
use crate::worker::opened::OpenCheckpoint;
use crate::worker::pool;
use crate::worker::port::files_of;
use crate::worker::reading::Driver;
use crate::worker::session::SharedSession;
use crate::worker::task::Task;
use hashes::FileHashes;

/// Maximum size of a manifest in bytes.
const MAX_MANIFEST_SIZE: u64 = 256 << 20;

/// Begins verifying, with the manifest that may be sent with the message.
pub(crate) fn start(session: &SharedSession, job: Job, request: VerifyRequest, data: &JsValue) {
    let finite = request.finite;
    let Some((open, found)) = session.borrow().measurements() else { return };
    let manifest = files_of(data).into_iter().next();
    let session = Rc::downgrade(session);
    Task::start(open, job, async move |task: &Task| {
        let report = verify(task, &found, manifest, finite).await?;
        // A scan running at the same time posts its own results.
        let scans = session
            .upgrade()
            .is_some_and(|session| session.borrow().jobs.is_running(JobKind::Scan));
        if !scans {
            // The scan reads only what verifying skips, such as quantised blocks, which is little.
            let scanned = scan::worker::scan(&task.open, &found, &task.job, |_| {
                task.open.report_fetched(&task.job);
            })
            .await?;
            task.job.post(&FromWorker::Done(TaskResult::Scan(Box::new(scanned))));
        }
        Ok(report)
    });
}

/// Returns the machine that reads everything. The browser computes the hashes that it can.
pub(crate) fn verification(open: &OpenCheckpoint) -> Result<Verification> {
    let checks = checks(&open.checkpoint, &open.limits)?;
    let verification = Verification::new(open.checkpoint.clone(), checks, true).with_statistics();
    Ok(match NativeHashes::new() {
        Some(_) => verification.hashing_outside(native_hashes::SIZES),
        None => verification,
    })
}

async fn verify(
    task: &Task,
    found: &SharedMeasurements,
    manifest: Option<File>,
    finite: bool,
) -> Result<VerifyReport> {
    // Checksums and hashes are of the stored tensors.
    let open = &task.open.stored();
    let checkpoint = &open.checkpoint;
    let name = manifest.as_ref().map(File::name);
    let manifest = manifest.map(read).transpose()?;
    let mut verification = verification(open)?;
    let mut native = NativeHashes::new();
    let keep = |verification: &mut Verification| {
        let mut found = found.borrow_mut();
        for (id, summary) in verification.take_summaries() {
            found.unread.remove(&id);
            let measured = scan::worker::measured(open, id, &summary, found.measured.len());
            found.measured.insert(id, measured.into());
        }
    };
    // Hashes of copies can't be compared between workers.
    if checkpoint.replicas.is_empty() {
        let pass = AssistedPass::Verify;
        let each = |verification: &mut Verification, hashes: Vec<_>, due| {
            for (tensor, hash) in hashes {
                verification.add_hash(tensor, hash);
            }
            keep(verification);
            if let Some(progress) = due {
                task.progress(progress);
            }
        };
        pool::share(&mut verification, &[open], pass, &task.job, each).await?;
    }
    let mut driver = Driver::new(&[&open.sources], &task.job);
    let mut files = FileHashes::new(&open.sources);
    let tap = async |verification: &mut Verification, bytes: &[u8]| {
        if let Need::Feed(span) = verification.need() {
            files.add(verification.files(), span, bytes);
        }
        let Some((native, (tensor, size))) = native.as_mut().zip(verification.hashed_outside())
        else {
            return Ok(());
        };
        native.feed(tensor, size, bytes)?;
        for (tensor, hash) in native.settle(MAX_WAITING).await? {
            verification.add_hash(tensor, hash);
        }
        Ok(())
    };
    let each = async |verification: &mut Verification, is_due: bool| {
        keep(verification);
        if is_due {
            task.progress(verification.progress());
        }
        Ok(())
    };
    let ended = driver.drive_tapped(&mut verification, tap, each).await;
    if let Err(error) = ended {
        driver.close().await;
        return Err(error);
    }
    if let Some(native) = &mut native {
        for (tensor, hash) in native.settle(0).await? {
            verification.add_hash(tensor, hash);
        }
    }
    keep(&mut verification);
    let verified = verification.hashes().iter().map(|(id, hash)| (*id, hash.clone()));
    found.borrow_mut().sha256.extend(verified);
    let (bytes, _) = verification.progress();
    let mut report = verification.into_report(manifest.as_ref())?;
    let compared = files.finish(&mut driver, &checkpoint.files, task, &mut report).await;
    driver.close().await;
    compared?;
    // Scales on a server are many small reads.
    if open.sources.is_local() {
        let faults = scale_faults(checkpoint, &|_| true, &mut Unwatched)?;
        report.result.scales.splice(0..0, faults);
    }
    Ok(VerifyReport {
        report,
        finite,
        command: command(&checkpoint.files, name, finite),
        bytes,
        millis: task.millis(),
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
