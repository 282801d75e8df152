//! Threads, which only the programs have.

use std::fmt::Debug;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::{Progress, Result, Unwatched};

/// Runs the parts of a job, on several threads if there are any. `statelens` has an
/// implementation; the default one is [`OneThread`].
pub trait Workers: Debug + Send + Sync {
    /// Returns the number of threads.
    fn count(&self) -> usize;

    /// Calls `part` with each number below `parts`, in any order, and returns when all calls have.
    fn each(&self, parts: usize, part: &(dyn Fn(usize) + Sync));

    /// Calls `make` with each number below `count`, a few ahead of `take`, which is called with each
    /// in order on this thread. Fails if `take` does, or if the job is cancelled.
    fn in_order(
        &self,
        count: usize,
        progress: &mut dyn Progress,
        make: &(dyn Fn(usize) + Sync),
        take: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        (0..count).try_for_each(|at| {
            progress.check(0, 0)?;
            make(at);
            take(at)
        })
    }
}

/// The thread of the caller.
#[derive(Debug, Clone, Copy, Default)]
pub struct OneThread;

impl Workers for OneThread {
    fn count(&self) -> usize {
        1
    }

    fn each(&self, parts: usize, part: &(dyn Fn(usize) + Sync)) {
        (0..parts).for_each(part);
    }
}

/// The page has no threads: known to the compiler, this leaves out code for them.
const HAS_THREADS: bool = !cfg!(target_family = "wasm");

/// Calls `make` with each number below `count` on all threads, and `then` with the results in order,
/// on this thread, while later ones are made. Holds few results at a time. Fails with the first error
/// in that order; a cancelled job ends between calls.
pub fn in_order<T: Send>(
    workers: &dyn Workers,
    count: usize,
    progress: &mut dyn Progress,
    make: impl Fn(usize, &mut dyn Progress) -> Result<T> + Sync,
    mut then: impl FnMut(usize, T) -> Result<()>,
) -> Result<()> {
    if !HAS_THREADS || workers.count() < 2 || count < 2 {
        return (0..count).try_for_each(|at| then(at, make(at, progress)?));
    }
    let made: Vec<Mutex<Option<Result<T>>>> = (0..count).map(|_| Mutex::new(None)).collect();
    let slot =
        |at: usize| made.get(at).map(|slot| slot.lock().unwrap_or_else(PoisonError::into_inner));
    let make = |at: usize| {
        let result = make(at, &mut Unwatched);
        if let Some(mut slot) = slot(at) {
            *slot = Some(result);
        }
    };
    let mut take = |at: usize| match slot(at).and_then(|mut slot| slot.take()) {
        Some(result) => then(at, result?),
        None => Ok(()),
    };
    workers.in_order(count, progress, &make, &mut take)
}

/// Returns the results of two functions that run at the same time if there are several threads.
pub fn both<A: Send + Sync, B: Send + Sync>(
    workers: &dyn Workers,
    one: impl Fn() -> A + Sync,
    other: impl Fn() -> B + Sync,
) -> (A, B) {
    if !HAS_THREADS {
        return (one(), other());
    }
    let (first, second) = (OnceLock::new(), OnceLock::new());
    workers.each(2, &|part| match part {
        0 => drop(first.set(one())),
        _ => drop(second.set(other())),
    });
    (first.into_inner().unwrap_or_else(one), second.into_inner().unwrap_or_else(other))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::Error;

    #[derive(Debug)]
    struct Two;

    impl Workers for Two {
        fn count(&self) -> usize {
            2
        }

        fn each(&self, parts: usize, part: &(dyn Fn(usize) + Sync)) {
            (0..parts).for_each(part);
        }
    }

    #[test]
    fn two_functions_run_once_each() {
        let count = AtomicUsize::new(0);
        let next = || count.fetch_add(1, Ordering::Relaxed);
        let results = both(&Two, next, || next() + 10);
        assert_eq!((results, count.into_inner()), ((0, 11), 2));
    }

    #[test]
    fn results_come_in_order_up_to_the_first_error() {
        for workers in [&OneThread as &dyn Workers, &Two] {
            for (fails, wanted) in [(99, 20), (13, 13)] {
                let mut seen = Vec::new();
                let make = |at: usize, _: &mut dyn Progress| match at >= fails {
                    true => Err(Error::damaged(format!("at {at}"))),
                    false => Ok(at * 2),
                };
                let then = |at: usize, made: usize| {
                    seen.push((at, made));
                    Ok(())
                };
                let ended = in_order(workers, 20, &mut Unwatched, make, then);
                assert_eq!(ended.is_err(), fails < 20);
                let text = ended.err().map_or(String::new(), |error| error.to_string());
                assert!(fails > 20 || text.contains("at 13"), "{text}");
                assert_eq!(seen, (0..wanted).map(|at| (at, at * 2)).collect::<Vec<_>>());
            }
        }
    }
}
