//! Signals that ask the program to stop.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use statelens::{Error, Progress, Result};

/// The last signal received; 0 if none was.
static CAUGHT: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// Returns the number of the signal that stopped the program, if one did.
pub(crate) fn caught() -> Option<u8> {
    u8::try_from(CAUGHT.load(Ordering::Relaxed)).ok().filter(|signal| *signal > 0)
}

thread_local! {
    /// The progress of a program that runs a command as a function, in this thread.
    static CALLER: RefCell<Option<Box<dyn Progress>>> = const { RefCell::new(None) };
}

/// Runs `work` for a program that handles signals itself, and stops it by `progress`.
pub(crate) fn watched<T>(progress: Box<dyn Progress>, work: impl FnOnce() -> T) -> T {
    let outer = CALLER.replace(Some(progress));
    let done = work();
    CALLER.set(outer);
    done
}

/// Reports progress to the calling program, if there is one; returns whether to continue.
pub(crate) fn report_to_caller(done: u64, total: u64) -> bool {
    // Taken, because the caller may run another command before it returns.
    let Some(mut progress) = CALLER.take() else { return true };
    let goes_on = progress.report(done, total);
    CALLER.set(Some(progress));
    goes_on
}

/// Returns a flag that is set when the user asks to stop (Ctrl-C, `kill`, a closed terminal). Code
/// that writes checks it, stops, and removes incomplete files.
///
/// Signals that were ignored when the program started stay ignored, as in any program: `nohup`
/// ignores the signal of a closed terminal, and a shell that starts a background job ignores
/// Ctrl-C.
pub(crate) fn stop_signal() -> Result<Arc<AtomicBool>> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let stop = Arc::new(AtomicBool::new(false));
    if CALLER.with_borrow(Option::is_some) {
        return Ok(stop);
    }
    for signal in [SIGINT, SIGTERM].into_iter().chain(hangup()) {
        if is_ignored(signal) {
            continue;
        }
        let number = usize::try_from(signal).unwrap_or_default();
        signal_hook::flag::register_usize(signal, CAUGHT.clone(), number)
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .map_err(|error| Error::io(format!("signals can't be handled: {error}")))?;
    }
    Ok(stop)
}

#[cfg(unix)]
fn hangup() -> Option<i32> {
    Some(signal_hook::consts::SIGHUP)
}

#[cfg(not(unix))]
fn hangup() -> Option<i32> {
    None
}

/// Returns whether a signal is ignored. If the system doesn't say, assumes so only for a closed
/// terminal.
#[cfg(unix)]
fn is_ignored(signal: i32) -> bool {
    let ignored = || {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
        u64::from_str_radix(ignored.trim(), 16).ok()
    };
    match ignored() {
        Some(ignored) => ignored & 1 << (signal - 1) != 0,
        None => signal == signal_hook::consts::SIGHUP,
    }
}

#[cfg(not(unix))]
fn is_ignored(_signal: i32) -> bool {
    false
}
