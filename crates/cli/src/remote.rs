//! Checkpoints at addresses, as much of them as the user allows to be fetched.

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

/// What was fetched from web servers; one command is one action.
static METER: LazyLock<Arc<Meter>> = LazyLock::new(|| Arc::new(Meter::new(CAP, ADVICE)));

/// What to do about the limit.
const ADVICE: &str = "Allow more with --max-fetch, as in --max-fetch 20GB.";

/// Changes what may be fetched.
pub(crate) fn allow(cap: u64) {
    METER.allow(cap);
}

/// How many workers read these files: a server is asked for one part after the other, as each part
/// that is read grows.
pub(crate) fn workers(files: &[&Path]) -> usize {
    match files.iter().any(|file| address(file).is_some()) {
        true => 1,
        false => parallel::cores(),
    }
}

/// Opens a remote checkpoint, with the files beside it that it names, and those in `with`.
pub(crate) fn open(url: &str, with: &[PathBuf], progress: &mut dyn Progress) -> Result<Checkpoint> {
    remote().open(url, with, progress)
}

/// The files of a remote checkpoint: itself, those beside it that it names, and those in `with`.
pub(crate) fn files(url: &str, with: &[PathBuf], progress: &mut dyn Progress) -> Result<FileSet> {
    remote().files(url, with, progress)
}

/// Refuses a plan that takes more from web servers than may be fetched.
pub(crate) fn check_cap(plan: &Plan) -> Result<()> {
    remote().check_cap(plan, ADVICE)
}

/// Says what was fetched, if something was, to a person.
pub(crate) fn tell() {
    if METER.requests() > 0 && std::io::stderr().is_terminal() {
        let (bytes, requests) = (size_text(METER.fetched()), METER.requests());
        let word = if requests == 1 { "request" } else { "requests" };
        complain(&format!("fetched {bytes} in {} {word}", grouped(requests)));
    }
}

fn remote() -> RemoteOpener {
    RemoteOpener { meter: METER.clone(), limits: limits().clone(), scratch: scratch::on_disk() }
}
