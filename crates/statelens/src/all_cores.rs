//! Threads: one per core, for opening the files of a set and for searching a large file; and more for
//! requests to a server.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Builder};

use statelens_checkpoint::{OneThread, Progress, Result, Workers};

use crate::parallel::{self, cores};

/// A thread per core.
#[derive(Debug, Clone, Copy, Default)]
pub struct AllCores;

impl Workers for AllCores {
    fn count(&self) -> usize {
        cores()
    }

    fn each(&self, parts: usize, part: &(dyn Fn(usize) + Sync)) {
        on_threads(self.count(), parts, part);
    }

    fn in_order(
        &self,
        count: usize,
        progress: &mut dyn Progress,
        make: &(dyn Fn(usize) + Sync),
        take: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        let has_begun = AtomicBool::new(false);
        let made = |at, _: &mut _, _: &mut dyn Progress| {
            has_begun.store(true, Ordering::Relaxed);
            make(at);
            at
        };
        let mut watch = Cancelling(progress);
        let parts = 0..count;
        let ended = parallel::in_order(parts, self.count(), |_| FILE, made, &mut watch, &mut *take);
        match ended {
            // The system refuses a thread.
            Err(_) if !has_begun.load(Ordering::Relaxed) => {
                OneThread.in_order(count, progress, make, take)
            }
            ended => ended,
        }
    }
}

/// Threads that wait for responses of a server most of the time.
#[cfg(feature = "object-store")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Requests;

#[cfg(feature = "object-store")]
impl Workers for Requests {
    fn count(&self) -> usize {
        16
    }

    fn each(&self, parts: usize, part: &(dyn Fn(usize) + Sync)) {
        on_threads(self.count(), parts, part);
    }
}

fn on_threads(threads: usize, parts: usize, part: &(dyn Fn(usize) + Sync)) {
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            match next.fetch_add(1, Ordering::Relaxed) {
                number if number < parts => part(number),
                _ => return,
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(parts) {
            // If the system refuses a thread, the others do its parts.
            if Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
}

/// The size of a file that is opened, as parts of a job are counted: files are not grouped.
const FILE: u64 = 1 << 20;

/// Asks whether to continue, without a number: files are not bytes.
struct Cancelling<'a>(&'a mut dyn Progress);

impl Progress for Cancelling<'_> {
    fn report(&mut self, _done: u64, _total: u64) -> bool {
        self.0.report(0, 0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    use statelens_checkpoint::{Error, Unwatched, in_order};

    use super::*;

    #[test]
    fn results_come_in_order_up_to_the_first_error() {
        for (fails, wanted) in [(99, 40), (13, 13)] {
            let mut seen = Vec::new();
            let make = |at: usize, _: &mut dyn Progress| {
                // Later results are ready first.
                std::thread::sleep(Duration::from_micros(if at.is_multiple_of(3) {
                    2_000
                } else {
                    0
                }));
                match at >= fails {
                    true => Err(Error::damaged(format!("at {at}"))),
                    false => Ok(at * 2),
                }
            };
            let then = |at: usize, made: usize| {
                seen.push((at, made));
                Ok(())
            };
            let ended = in_order(&AllCores, 40, &mut Unwatched, make, then);
            let text = ended.err().map_or(String::new(), |error| error.to_string());
            assert_eq!(text.contains("at 13"), fails == 13, "{text}");
            assert_eq!(seen, (0..wanted).map(|at| (at, at * 2)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn results_are_used_while_others_are_made() {
        let (log, waits) = (Mutex::new(Vec::new()), Duration::from_millis(5));
        let make = |at: usize, _: &mut dyn Progress| {
            std::thread::sleep(waits);
            log.lock().unwrap().push(("made", at));
            Ok(())
        };
        let then = |at: usize, ()| {
            log.lock().unwrap().push(("used", at));
            Ok(())
        };
        in_order(&AllCores, cores() * 16, &mut Unwatched, make, then).unwrap();
        let log = log.into_inner().unwrap();
        let used = log.iter().position(|entry| *entry == ("used", 0)).unwrap();
        assert!(used <= cores() * 8, "{used} were made before the first was used");
    }

    #[test]
    fn runs_every_part_once() {
        for parts in [0, 1, 2, 63] {
            let done = AtomicU64::new(0);
            AllCores.each(parts, &|part| {
                done.fetch_add(1 << part, Ordering::Relaxed);
            });
            assert_eq!(done.into_inner(), (1 << parts) - 1);
        }
    }
}
