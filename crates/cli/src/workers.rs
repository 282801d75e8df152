//! One job after the other on all cores, in bounded memory, with results in the order of the jobs.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use statelens_checkpoint::{Error, Progress, Result};

/// As many workers as there are cores for this process.
pub(crate) fn count() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// How far all workers are, and whether they are to stop.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    done: AtomicU64,
    stop: AtomicBool,
}

/// A worker's view of that.
pub(crate) struct Watch<'a> {
    shared: &'a Shared,
    before: u64,
}

impl Progress for Watch<'_> {
    fn report(&mut self, done: u64, _total: u64) -> bool {
        self.shared.done.fetch_add(done.saturating_sub(self.before), Ordering::Relaxed);
        self.before = done;
        !self.shared.stop.load(Ordering::Relaxed)
    }
}

/// Results that may wait for one before them, for each worker.
const AHEAD: usize = 4;

/// How often progress is told.
const TICK: Duration = Duration::from_millis(100);

/// Does `work` for each of the jobs, on so many threads, each with a state of its own that `state`
/// makes. Results go to `each` in the order of the jobs, on the thread that called; when it fails,
/// or `progress` says stop, all workers do. `total` is what all jobs report together.
pub(crate) fn run<J: Sync, S, T: Send>(
    jobs: &[J],
    workers: usize,
    total: u64,
    progress: &mut dyn Progress,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, &J, &mut Watch<'_>) -> Result<T> + Sync,
    mut each: impl FnMut(usize, Result<T>) -> Result<()>,
) -> Result<()> {
    let workers = workers.clamp(1, jobs.len().max(1));
    let shared = Shared::default();
    let next = AtomicUsize::new(0);
    let (delivered, turn) = (Mutex::new(0usize), Condvar::new());
    let (send, receive) = mpsc::channel();
    let stopped = || shared.stop.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            let send = send.clone();
            let (shared, next, delivered, turn) = (&shared, &next, &delivered, &turn);
            let (state, work, stopped) = (&state, &work, &stopped);
            scope.spawn(move || {
                let mut state = state();
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(index) else { return };
                    let mut done = delivered.lock().unwrap_or_else(PoisonError::into_inner);
                    while index >= *done + workers * AHEAD && !stopped() {
                        done = turn.wait(done).unwrap_or_else(PoisonError::into_inner);
                    }
                    drop(done);
                    if stopped() {
                        return;
                    }
                    let result = work(&mut state, job, &mut Watch { shared, before: 0 });
                    if send.send((index, result)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        let mut waiting = BTreeMap::new();
        let mut expected = 0;
        let mut deliver = || loop {
            match receive.recv_timeout(TICK) {
                Ok((index, result)) => {
                    waiting.insert(index, result);
                    while let Some(result) = waiting.remove(&expected) {
                        each(expected, result)?;
                        expected += 1;
                    }
                    *delivered.lock().unwrap_or_else(PoisonError::into_inner) = expected;
                    turn.notify_all();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) if expected == jobs.len() => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => return Err(Error::cancelled()),
            }
            progress.check(shared.done.load(Ordering::Relaxed), total)?;
        };
        let outcome = deliver();
        if outcome.is_err() {
            shared.stop.store(true, Ordering::Relaxed);
            // Held while it is notified, so that nobody begins to wait in between.
            let _held = delivered.lock().unwrap_or_else(PoisonError::into_inner);
            turn.notify_all();
        }
        outcome
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use statelens_checkpoint::Unwatched;

    #[test]
    fn results_come_in_order_and_never_far_ahead() {
        let jobs: Vec<u64> = (0..500).collect();
        let ahead = AtomicUsize::new(0);
        let taken = AtomicUsize::new(0);
        let mut found = Vec::new();
        let work = |state: &mut u64, job: &u64, _: &mut Watch<'_>| {
            *state += 1;
            let before = taken.load(Ordering::SeqCst);
            ahead.fetch_max((*job as usize).saturating_sub(before), Ordering::SeqCst);
            if job.is_multiple_of(50) {
                std::thread::sleep(Duration::from_millis(3));
            }
            Ok(job * 2)
        };
        run(
            &jobs,
            4,
            0,
            &mut Unwatched,
            || 0u64,
            work,
            |index, result| {
                taken.store(index, Ordering::SeqCst);
                found.push(result?);
                Ok(())
            },
        )
        .unwrap();
        assert_eq!(found, jobs.iter().map(|job| job * 2).collect::<Vec<_>>());
        assert!(ahead.into_inner() <= 4 * AHEAD + 1);
    }

    #[test]
    fn all_stop_when_one_is_enough_or_nobody_wants_more() {
        struct Stop;
        impl Progress for Stop {
            fn report(&mut self, _: u64, _: u64) -> bool {
                false
            }
        }
        let jobs = vec![(); 100_000];
        let work = |_: &mut (), (): &(), _: &mut Watch<'_>| {
            std::thread::sleep(Duration::from_millis(1));
            Ok(())
        };
        let stopped = run(&jobs, 3, 0, &mut Stop, || (), work, |_, _| Ok(()));
        assert_eq!(stopped.unwrap_err().kind(), statelens_checkpoint::ErrorKind::Cancelled);
        let mut count = 0;
        let failed = run(
            &jobs,
            3,
            0,
            &mut Unwatched,
            || (),
            work,
            |_, _| {
                count += 1;
                if count == 10 { Err(Error::io("enough")) } else { Ok(()) }
            },
        );
        assert!(failed.is_err() && count == 10);
    }
}
