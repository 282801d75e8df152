//! Signals that ask the program to stop.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use statelens_checkpoint::{Error, Result};

/// The last signal received; 0 if none was.
static CAUGHT: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// Returns the number of the signal that stopped the program, if one did.
pub(crate) fn caught() -> Option<u8> {
    u8::try_from(CAUGHT.load(Ordering::Relaxed)).ok().filter(|signal| *signal > 0)
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
