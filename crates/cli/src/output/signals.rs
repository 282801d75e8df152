//! Being asked to stop.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use statelens_checkpoint::{Error, Result};

/// The signal that came last; 0 for none.
static CAUGHT: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// The number of the signal that asked us to stop, if one did.
pub(crate) fn caught() -> Option<u8> {
    u8::try_from(CAUGHT.load(Ordering::Relaxed)).ok().filter(|signal| *signal > 0)
}

/// Set when the user asks to stop (Ctrl-C, `kill`, a closed terminal): whoever writes looks at
/// it, gives up, and removes what is there.
///
/// What we were started with as ignored stays so, as with any program: `nohup` does that to the
/// signal of a closed terminal, and a shell that starts a job in the background to Ctrl-C.
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
            .map_err(|error| Error::io(format!("signals can't be watched: {error}")))?;
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

/// Whether a signal is ignored. Where the system does not tell, that is taken to be so of a closed
/// terminal only.
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
