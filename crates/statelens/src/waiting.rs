//! Waits for servers in short steps, so that the caller can stop waiting.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use statelens_checkpoint::{Error, Result};

use crate::threads::{no_thread, thread};

/// Time between two checks.
const STEP: Duration = Duration::from_millis(50);

/// A check whether to go on waiting. Its error ends the request that waits, which returns it.
pub type StopCheck = dyn Fn() -> Result<()> + Send + Sync;

thread_local! {
    static CHECK: RefCell<Option<Arc<StopCheck>>> = const { RefCell::new(None) };
}

/// Restores the check of the caller.
struct Outer(Option<Arc<StopCheck>>);

impl Drop for Outer {
    fn drop(&mut self) {
        CHECK.set(self.0.take());
    }
}

/// Runs `work`. While it waits for a server on this thread, calls `check` every 50 ms.
pub fn stoppable<T>(check: Arc<StopCheck>, work: impl FnOnce() -> T) -> T {
    let _outer = Outer(CHECK.replace(Some(check)));
    work()
}

/// Returns the check of this thread, if there is one.
pub(crate) fn current() -> Option<Arc<StopCheck>> {
    CHECK.with_borrow(Clone::clone)
}

/// Returns the result of `request`, which blocks. If this thread has a check, another one makes the
/// request, and is left alone when the check fails.
#[cfg(any(feature = "http", feature = "object-store"))]
pub(crate) fn wait<T: Send + 'static>(
    request: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let Some(check) = current() else { return request() };
    let (send, receive) = mpsc::channel();
    let worker = move || {
        // The receiver is gone if the check failed.
        let _ = send.send(request());
    };
    thread()?.spawn(worker).map_err(no_thread)?;
    loop {
        match receive.recv_timeout(STEP) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Timeout) => check()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::io("a request ended unexpectedly"));
            }
        }
    }
}

/// Waits for a time, or until the check of this thread fails.
#[cfg(any(feature = "http", feature = "object-store"))]
pub(crate) fn pause(time: Duration) -> Result<()> {
    let until = Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(STEP));
        if let Some(check) = current() {
            check()?;
        }
    }
}

/// Returns the result of a future, unless the check of this thread fails before it.
#[cfg(feature = "object-store")]
pub(crate) async fn checked<T>(future: impl Future<Output = T>) -> Result<T> {
    let mut future = std::pin::pin!(future);
    loop {
        match tokio::time::timeout(STEP, &mut future).await {
            Ok(result) => return Ok(result),
            Err(_) => {
                if let Some(check) = current() {
                    check()?;
                }
            }
        }
    }
}

#[cfg(all(test, feature = "http"))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_failed_check_ends_a_wait_that_would_not_end() {
        let checks = Arc::new(AtomicUsize::new(0));
        let count = checks.clone();
        let check = Arc::new(move || match count.fetch_add(1, Ordering::SeqCst) {
            0..2 => Ok(()),
            _ => Err(Error::cancelled()),
        });
        let (keep, silent) = mpsc::channel::<()>();
        let waited = stoppable(check.clone(), || wait(move || Ok(silent.recv().is_ok())));
        assert_eq!(waited.unwrap_err(), Error::cancelled());
        assert_eq!(checks.load(Ordering::SeqCst), 3);
        drop(keep);
        let paused = stoppable(check, || pause(Duration::from_secs(3_600)));
        assert_eq!(paused.unwrap_err(), Error::cancelled());
        assert_eq!(wait(|| Ok(7)), Ok(7));
        assert!(current().is_none());
    }
}
