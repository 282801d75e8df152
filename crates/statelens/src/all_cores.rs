//! Threads: one per core, for opening the files of a set and for searching a large file; and more for
//! requests to a server.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Builder};

use statelens_checkpoint::Workers;

use crate::parallel::cores;

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

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

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
