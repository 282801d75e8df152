//! Processes the parts of a job on all cores, in bounded memory. The results do not depend on the
//! number of cores.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use statelens_checkpoint::{Error, Progress, Result};
use statelens_tensor::{Buffer, InOrder, Work, drive as drive_one};

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::mpsc::{self, RecvTimeoutError};
use crate::sync::{Condvar, Mutex, PoisonError, scope};
use crate::threads::{no_thread, thread};
use crate::waiting::stoppable;

/// Returns the number of cores available to this process.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Bytes that are read at once: few enough to stay in the cache until they are processed.
const BUFFER: usize = 128 << 10;

/// Groups of results per worker that may wait for an earlier one.
const AHEAD: usize = 4;

/// Bytes and number of small parts that a worker processes in a row: handing over each result takes
/// longer than to read some hundred values.
const GROUP_BYTES: u64 = 64 << 10;
const GROUP_PARTS: usize = 64;

/// Groups per worker that must remain if parts are grouped, so that all workers have some.
const GROUPS: usize = 16;

/// Interval between progress reports.
const TICK: Duration = Duration::from_millis(100);

/// Processes the remaining parts of a job on `workers` threads, until it is done or `progress`
/// cancels it. The results are combined in the order of the parts, on the calling thread; if that
/// fails, all threads stop.
pub fn drive<W>(machine: &mut InOrder<W>, workers: usize, progress: &mut dyn Progress) -> Result<()>
where
    W: Work + Sync,
    W::Found: Send,
{
    drive_watched(machine, workers, progress, |_| Ok(()))
}

/// Runs as [`drive`] does; `each` is called with the combined result whenever it grew.
pub fn drive_watched<W>(
    machine: &mut InOrder<W>,
    workers: usize,
    progress: &mut dyn Progress,
    mut each: impl FnMut(&mut W::Sum) -> Result<()>,
) -> Result<()>
where
    W: Work + Sync,
    W::Found: Send,
{
    let (work, mut sums) = machine.split();
    let make = |part, buffer: &mut Buffer, watch: &mut dyn Progress| {
        let (machine, read) = match work.begin(part) {
            Ok(Some(mut machine)) => {
                let read = drive_one(&mut machine, buffer, watch);
                (Some(machine), read)
            }
            Ok(None) => (None, Ok(())),
            Err(error) => (None, Err(error)),
        };
        work.end(part, machine, read)
    };
    let parts = sums.next()..work.parts();
    in_order(
        parts,
        workers,
        |part| work.size(part),
        make,
        progress,
        |found| {
            sums.take(work, found)?;
            each(sums.sum())
        },
    )
}

/// Calls `make` for each of `parts` on `workers` threads, until all are done or `progress` cancels
/// it. `take` gets the results in the order of the parts, on the calling thread; if it fails, all
/// threads stop. If `make` panics, all threads stop, too, and the panic goes on in the calling thread.
/// `size` is the size of a part in bytes, as counted by progress.
///
/// Each thread holds the memory of one part, and a few results per thread wait for their turn. Small
/// parts that follow each other are processed and handed over together.
pub(crate) fn in_order<T: Send>(
    parts: Range<usize>,
    workers: usize,
    size: impl Fn(usize) -> u64 + Sync,
    make: impl Fn(usize, &mut Buffer, &mut dyn Progress) -> T + Sync,
    progress: &mut dyn Progress,
    mut take: impl FnMut(T) -> Result<()>,
) -> Result<()> {
    let total = parts.clone().fold(0u64, |total, part| total.saturating_add(size(part)));
    let workers = workers.clamp(1, parts.len().max(1));
    let shared = WorkerProgress::default();
    let most = (parts.len() / (workers * GROUPS)).clamp(1, GROUP_PARTS);
    let next = Mutex::new(Groups { number: 0, parts: parts.clone(), most });
    let (delivered, turn) = (Mutex::new(0), Condvar::new());
    let (send, receive) = mpsc::channel();
    let stopped = || shared.stop.load(Ordering::Relaxed);
    scope(|scope| {
        let mut threads = Vec::new();
        for _ in 0..workers {
            let send = send.clone();
            let (shared, next, delivered, turn) = (&shared, &next, &delivered, &turn);
            let (stopped, size, make) = (&stopped, &size, &make);
            let work = move || {
                let mut buffer = Buffer::new(BUFFER);
                let _guard = StopOnPanic { shared, delivered, turn };
                loop {
                    let group = next.lock().unwrap_or_else(PoisonError::into_inner).next(size);
                    let Some((number, group)) = group else { return };
                    let mut done = delivered.lock().unwrap_or_else(PoisonError::into_inner);
                    while number >= *done + workers * AHEAD && !stopped() {
                        done = turn.wait(done).unwrap_or_else(PoisonError::into_inner);
                    }
                    drop(done);
                    let mut found = Vec::with_capacity(group.len());
                    for part in group {
                        if stopped() {
                            return;
                        }
                        let mut watch = Watch { progress: shared, before: 0, size: size(part) };
                        found.push(make(part, &mut buffer, &mut watch));
                    }
                    if send.send((number, found)).is_err() {
                        return;
                    }
                }
            };
            let stop = shared.stop.clone();
            let go_on = move || match stop.load(Ordering::Relaxed) {
                true => Err(Error::cancelled()),
                false => Ok(()),
            };
            let worker = move || stoppable(Arc::new(go_on), work);
            // One thread is enough; with little memory, it just takes longer.
            match thread().and_then(|thread| thread.spawn_scoped(scope, worker).map_err(no_thread))
            {
                Ok(thread) => threads.push(thread),
                Err(error) if threads.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        drop(send);
        let (mut waiting, mut groups, mut taken) = (BTreeMap::new(), 0, parts.start);
        let mut deliver = || loop {
            match receive.recv_timeout(TICK) {
                Ok((number, found)) => {
                    waiting.insert(number, found);
                    while let Some(found) = waiting.remove(&groups) {
                        groups += 1;
                        taken += found.len();
                        found.into_iter().try_for_each(&mut take)?;
                    }
                    *delivered.lock().unwrap_or_else(PoisonError::into_inner) = groups;
                    turn.notify_all();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) if taken == parts.end => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => return Err(Error::cancelled()),
            }
            progress.check(shared.done.load(Ordering::Relaxed), total)?;
        };
        let outcome = deliver();
        if outcome.is_err() {
            stop_all(&shared, &delivered, &turn);
        }
        for thread in threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
        outcome
    })
}

/// The parts that no worker has taken yet.
struct Groups {
    /// The number of the next group.
    number: usize,
    parts: Range<usize>,
    /// The maximum number of parts in a group.
    most: usize,
}

impl Groups {
    /// Takes the next group, a part and the small ones after it, with its number.
    fn next(&mut self, size: impl Fn(usize) -> u64) -> Option<(usize, Range<usize>)> {
        let (number, start) = (self.number, self.parts.next()?);
        let mut bytes = size(start);
        while let Some(part) = self.parts.clone().next()
            && part - start < self.most
            && bytes.saturating_add(size(part)) <= GROUP_BYTES
        {
            bytes = bytes.saturating_add(size(part));
            self.parts.start += 1;
        }
        self.number += 1;
        Some((number, start..self.parts.start))
    }
}

/// Stops all workers, also those that wait for their turn.
fn stop_all(shared: &WorkerProgress, delivered: &Mutex<usize>, turn: &Condvar) {
    shared.stop.store(true, Ordering::Relaxed);
    // The lock prevents a worker from starting to wait just after the notification.
    let _held = delivered.lock().unwrap_or_else(PoisonError::into_inner);
    turn.notify_all();
}

/// Stops all workers if the worker that holds it panics: its part would be missing, and the others
/// would wait for it for ever.
struct StopOnPanic<'a> {
    shared: &'a WorkerProgress,
    delivered: &'a Mutex<usize>,
    turn: &'a Condvar,
}

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            stop_all(self.shared, self.delivered, self.turn);
        }
    }
}

/// The progress of all workers, and whether they must stop.
#[derive(Debug, Default)]
struct WorkerProgress {
    done: AtomicU64,
    stop: Arc<AtomicBool>,
}

/// A worker's view of the shared progress, for a part of `size` bytes.
struct Watch<'a> {
    progress: &'a WorkerProgress,
    before: u64,
    size: u64,
}

impl Progress for Watch<'_> {
    fn report(&mut self, done: u64, _total: u64) -> bool {
        let done = done.min(self.size);
        self.progress.done.fetch_add(done.saturating_sub(self.before), Ordering::Relaxed);
        self.before = done;
        !self.progress.stop.load(Ordering::Relaxed)
    }
}

impl Drop for Watch<'_> {
    /// Counts the rest of the part as done, because it may have ended with an error.
    fn drop(&mut self) {
        self.progress.done.fetch_add(self.size - self.before, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use statelens_checkpoint::{ErrorKind, Unwatched};
    use statelens_tensor::{Pour, Receive};

    use super::*;
    use crate::sync::atomic::AtomicUsize;

    /// Doubles numbers. Some take longer than later ones.
    struct Doubling {
        parts: usize,
        /// Bytes of a part.
        size: u64,
        /// The results taken, and the largest distance from them at which a part was begun.
        taken: AtomicUsize,
        ahead: AtomicUsize,
        most: usize,
    }

    struct Nothing;

    impl Receive for Nothing {
        fn receive(&mut self, _: &[u8]) -> Result<()> {
            Ok(())
        }
    }

    impl Work for Doubling {
        type Part = Pour<Nothing>;
        type Found = usize;
        type Sum = Vec<usize>;

        fn parts(&self) -> usize {
            self.parts
        }

        fn size(&self, _: usize) -> u64 {
            self.size
        }

        fn begin(&self, part: usize) -> Result<Option<Self::Part>> {
            let ahead = part.saturating_sub(self.taken.load(Ordering::SeqCst));
            self.ahead.fetch_max(ahead, Ordering::SeqCst);
            if part.is_multiple_of(50) {
                std::thread::sleep(Duration::from_millis(3));
            }
            Ok(None)
        }

        fn end(&self, part: usize, _: Option<Self::Part>, _: Result<()>) -> usize {
            part * 2
        }

        fn take(&self, sum: &mut Vec<usize>, part: usize, found: usize) -> Result<()> {
            self.taken.store(part, Ordering::SeqCst);
            sum.push(found);
            if sum.len() == self.most { Err(Error::io("enough")) } else { Ok(()) }
        }
    }

    fn doubling(parts: usize, size: u64, most: usize) -> InOrder<Doubling> {
        let (taken, ahead) = (AtomicUsize::new(0), AtomicUsize::new(0));
        InOrder::of(Doubling { parts, size, taken, ahead, most }, Vec::new())
    }

    #[test]
    fn results_are_ordered_with_bounded_lookahead() {
        for (workers, size) in [1, 2, 3, 7].into_iter().flat_map(|n| [(n, 1), (n, GROUP_BYTES)]) {
            let mut machine = doubling(500, size, usize::MAX);
            drive(&mut machine, workers, &mut Unwatched).unwrap();
            let (work, mut sums) = machine.split();
            assert_eq!(*sums.sum(), (0..500).map(|part| part * 2).collect::<Vec<_>>());
            let group = if size == 1 { 500 / (workers * GROUPS) } else { 1 };
            assert!(work.ahead.load(Ordering::SeqCst) <= (workers * AHEAD + 1) * group);
        }
    }

    #[test]
    fn small_parts_are_processed_together() {
        let groups = |sizes: &[u64], most| {
            let mut groups = Groups { number: 0, parts: 2..2 + sizes.len(), most };
            std::iter::from_fn(|| groups.next(|part| sizes[part - 2])).collect::<Vec<_>>()
        };
        assert_eq!(groups(&[1; 5], 2), [(0, 2..4), (1, 4..6), (2, 6..7)]);
        let half = GROUP_BYTES / 2;
        let wanted = [(0, 2..4), (1, 4..5), (2, 5..6), (3, 6..8)];
        assert_eq!(groups(&[half, half, half, u64::MAX, 0, 7], 9), wanted);
    }

    #[test]
    fn all_workers_stop_on_error_or_cancellation() {
        struct Stop;
        impl Progress for Stop {
            fn report(&mut self, _: u64, _: u64) -> bool {
                false
            }
        }
        let stopped = drive(&mut doubling(100_000, 1, usize::MAX), 3, &mut Stop).unwrap_err();
        assert_eq!(stopped.kind(), ErrorKind::Cancelled);
        let mut machine = doubling(100_000, 1, 10);
        assert!(drive(&mut machine, 3, &mut Unwatched).is_err());
        assert_eq!(machine.split().1.sum().len(), 10);
    }

    #[test]
    fn a_panic_of_a_worker_reaches_the_caller() {
        for workers in [1, 2, 5] {
            let make = |part: usize, _: &mut Buffer, _: &mut dyn Progress| {
                assert!(part != 3, "part 3 is bad");
                part
            };
            let run = || in_order(0..10_000, workers, |_| 1, make, &mut Unwatched, |_| Ok(()));
            let run = std::panic::AssertUnwindSafe(run);
            let panic = std::panic::catch_unwind(run).unwrap_err();
            assert_eq!(panic.downcast_ref::<&str>(), Some(&"part 3 is bad"));
        }
    }

    #[test]
    fn a_worker_stops_waiting_for_a_server_when_all_stop() {
        let make = |_: usize, _: &mut Buffer, _: &mut dyn Progress| {
            // Stands for a server that never responds.
            while crate::waiting::current().unwrap()().is_ok() {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        struct Third(usize);
        impl Progress for Third {
            fn report(&mut self, _: u64, _: u64) -> bool {
                self.0 += 1;
                self.0 < 3
            }
        }
        let stopped = in_order(0..9, 2, |_| 1, make, &mut Third(0), |()| Ok(()));
        assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Cancelled);
    }
}
