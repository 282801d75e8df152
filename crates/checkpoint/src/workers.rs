//! Threads, which only the programs have.

use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};

use crate::{Progress, Result, Unwatched};

/// Runs the parts of a job, on several threads if there are any. `statelens` has an
/// implementation; the default one is [`OneThread`].
pub trait Workers: Debug + Send + Sync {
    /// Returns the number of threads.
    fn count(&self) -> usize;

    /// Calls `part` with each number below `parts`, in any order, and returns when all calls have.
    fn each(&self, parts: usize, part: &(dyn Fn(usize) + Sync));
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

/// The number of results per thread that are made before they are used.
const AHEAD: usize = 2;

/// Calls `make` with each number below `count` on all threads, and `then` with the results in order.
/// Holds few results at a time. Fails with the first error in that order; a cancelled job ends
/// between calls.
pub fn in_order<T: Send>(
    workers: &dyn Workers,
    count: usize,
    progress: &mut dyn Progress,
    make: impl Fn(usize, &mut dyn Progress) -> Result<T> + Sync,
    mut then: impl FnMut(usize, T) -> Result<()>,
) -> Result<()> {
    let threads = workers.count();
    if threads < 2 || count < 2 {
        return (0..count).try_for_each(|at| then(at, make(at, progress)?));
    }
    let mut start = 0;
    while start < count {
        progress.check(0, 0)?;
        let run = (count - start).min(threads * AHEAD);
        let made: Vec<Mutex<Option<Result<T>>>> = (0..run).map(|_| Mutex::new(None)).collect();
        workers.each(run, &|at| {
            let result = make(start + at, &mut Unwatched);
            if let Some(slot) = made.get(at) {
                *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            }
        });
        for (at, slot) in made.into_iter().enumerate() {
            if let Some(result) = slot.into_inner().unwrap_or_else(PoisonError::into_inner) {
                then(start + at, result?)?;
            }
        }
        start += run;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[derive(Debug)]
    struct Threads;

    impl Workers for Threads {
        fn count(&self) -> usize {
            3
        }

        fn each(&self, parts: usize, part: &(dyn Fn(usize) + Sync)) {
            std::thread::scope(|scope| {
                (0..parts).rev().for_each(|at| drop(scope.spawn(move || part(at))));
            });
        }
    }

    #[test]
    fn results_come_in_order_up_to_the_first_error() {
        for workers in [&OneThread as &dyn Workers, &Threads] {
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
