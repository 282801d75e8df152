//! Remote checkpoints. The user limits how much may be fetched.

use std::cell::RefCell;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use statelens::parts::checkpoint::{Advice, Plan, Setting, advice};
pub(crate) use statelens::remote::address;
use statelens::remote::{CAP, Meter, RemoteOpener};
use statelens::{Result, SourceOpener};

use crate::limits::limits;
use crate::print::{grouped, size_text, warn};
use crate::scratch;

/// Counts the bytes fetched from web servers; each command is one action.
static METER: LazyLock<Arc<Meter>> = LazyLock::new(|| Arc::new(Meter::new(CAP, more())));

/// Returns the advice for an exceeded limit.
fn more() -> Advice {
    advice!["Allow more with ", Setting::MaxFetch, ", such as 20GB."]
}

thread_local! {
    /// The meter of a command that runs as a function, in this thread.
    static OF_CALL: RefCell<Option<Arc<Meter>>> = const { RefCell::new(None) };
}

/// Runs `work` with a limit of its own on the bytes that are fetched, for a program that runs
/// several commands.
pub(crate) fn limited<T>(most: Option<u64>, work: impl FnOnce() -> T) -> T {
    let meter = Arc::new(Meter::new(most.unwrap_or(CAP), more()));
    let outer = OF_CALL.replace(Some(meter));
    let done = work();
    OF_CALL.set(outer);
    done
}

/// Sets how many bytes may be fetched.
pub(crate) fn allow(cap: u64) {
    METER.allow(cap);
}

/// Returns an opener of checkpoints on disk and at addresses, with the limits of this command.
pub(crate) fn opener(with: &[PathBuf]) -> SourceOpener {
    SourceOpener::new(with, remote())
}

/// Refuses a plan that would fetch more from web servers than is allowed.
pub(crate) fn check_cap(plan: &Plan) -> Result<()> {
    remote().check_cap(plan, more())
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
    let meter = OF_CALL.with_borrow(Clone::clone).unwrap_or_else(|| METER.clone());
    RemoteOpener { meter, limits: limits().clone(), scratch: scratch::on_disk() }
}
