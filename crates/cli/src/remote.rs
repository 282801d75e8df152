//! Remote checkpoints. The user limits how much may be fetched.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use statelens::parallel;
use statelens::remote::{CAP, RemoteOpener};
pub(crate) use statelens::remote::{address, write};
use statelens_checkpoint::{Checkpoint, FileSet, Plan, Progress, Result};
use statelens_remote::Meter;

use crate::limits::limits;
use crate::print::{complain, grouped, size_text};
use crate::scratch;

/// Counts the bytes fetched from web servers; each command is one action.
static METER: LazyLock<Arc<Meter>> = LazyLock::new(|| Arc::new(Meter::new(CAP, ADVICE)));

/// Advice for an exceeded limit.
const ADVICE: &str = "Allow more with --max-fetch, as in --max-fetch 20GB.";

/// Sets how many bytes may be fetched.
pub(crate) fn allow(cap: u64) {
    METER.allow(cap);
}

/// Returns the number of workers that read these files. One for a remote file, because sequential
/// requests grow in size.
pub(crate) fn workers(files: &[&Path]) -> usize {
    match files.iter().any(|file| address(file).is_some()) {
        true => 1,
        false => parallel::cores(),
    }
}

/// Opens a remote checkpoint with the files that it refers to and those in `with`.
pub(crate) fn open(url: &str, with: &[PathBuf], progress: &mut dyn Progress) -> Result<Checkpoint> {
    remote().open(url, with, progress)
}

/// Returns the files of a remote checkpoint: itself, the files that it refers to, and those in
/// `with`.
pub(crate) fn files(url: &str, with: &[PathBuf], progress: &mut dyn Progress) -> Result<FileSet> {
    remote().files(url, with, progress)
}

/// Refuses a plan that would fetch more from web servers than is allowed.
pub(crate) fn check_cap(plan: &Plan) -> Result<()> {
    remote().check_cap(plan, ADVICE)
}

/// Reports the bytes fetched, if standard error is a terminal.
pub(crate) fn report_fetched() {
    if METER.requests() > 0 && std::io::stderr().is_terminal() {
        let (bytes, requests) = (size_text(METER.fetched()), METER.requests());
        let word = if requests == 1 { "request" } else { "requests" };
        complain(&format!("fetched {bytes} in {} {word}", grouped(requests)));
    }
}

fn remote() -> RemoteOpener {
    RemoteOpener { meter: METER.clone(), limits: limits().clone(), scratch: scratch::on_disk() }
}
