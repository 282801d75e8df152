//! Remote checkpoints. The user limits how much may be fetched.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use statelens::parts::checkpoint::Plan;
pub(crate) use statelens::remote::address;
use statelens::remote::{CAP, Meter, RemoteOpener};
use statelens::{Result, SourceOpener};

use crate::limits::limits;
use crate::print::{grouped, size_text, warn};
use crate::scratch;

/// Counts the bytes fetched from web servers; each command is one action.
static METER: LazyLock<Arc<Meter>> = LazyLock::new(|| Arc::new(Meter::new(CAP, ADVICE)));

/// Advice for an exceeded limit.
const ADVICE: &str = "Allow more with --max-fetch, as in --max-fetch 20GB.";

/// Sets how many bytes may be fetched.
pub(crate) fn allow(cap: u64) {
    METER.allow(cap);
}

/// Returns what opens checkpoints on disk and at addresses, with the limits of this command.
pub(crate) fn opener(with: &[PathBuf]) -> SourceOpener {
    SourceOpener::new(with, remote())
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
        warn(&format!("fetched {bytes} in {} {word}", grouped(requests)));
    }
}

fn remote() -> RemoteOpener {
    RemoteOpener { meter: METER.clone(), limits: limits().clone(), scratch: scratch::on_disk() }
}
