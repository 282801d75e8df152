//! Parts of a job are combined in order, and every thread ends, under any schedule.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use interleavings::parallel::drive;
use statelens_checkpoint::{Error, ErrorKind, Progress, Result, Unwatched};
use statelens_tensor::{InOrder, Pour, Receive, Work};

/// Schedules that each test tries of a kind.
const SCHEDULES: usize = 300;
/// More parts than two workers may be ahead of the combined result.
const PARTS: usize = 12;

struct Nothing;

impl Receive for Nothing {
    fn receive(&mut self, _: &[u8]) -> Result<()> {
        Ok(())
    }
}

/// Doubles numbers.
#[derive(Default)]
struct Doubling {
    /// The parts beyond [`PARTS`].
    more: usize,
    /// The part that panics, from 1.
    panics: usize,
    /// The part at which the combined result refuses more, from 1.
    refused: usize,
    begun: AtomicUsize,
}

impl Work for Doubling {
    type Part = Pour<Nothing>;
    type Found = usize;
    type Sum = Vec<usize>;

    fn parts(&self) -> usize {
        PARTS + self.more
    }

    fn size(&self, _: usize) -> u64 {
        1
    }

    fn begin(&self, part: usize) -> Result<Option<Self::Part>> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        assert!(part + 1 != self.panics, "part is bad");
        Ok(None)
    }

    fn end(&self, part: usize, _: Option<Self::Part>, _: Result<()>) -> usize {
        part * 2
    }

    fn take(&self, sum: &mut Vec<usize>, part: usize, found: usize) -> Result<()> {
        sum.push(found);
        if part + 1 == self.refused { Err(Error::io("enough")) } else { Ok(()) }
    }
}

fn doubled(parts: usize) -> Vec<usize> {
    (0..parts).map(|part| part * 2).collect()
}

#[test]
fn results_are_in_order() {
    for workers in 1..4 {
        let run = move || {
            let mut machine = InOrder::of(Doubling::default(), Vec::new());
            drive(&mut machine, workers, &mut Unwatched).unwrap();
            assert_eq!(*machine.sum(), doubled(PARTS));
            assert_eq!(machine.work().begun.load(Ordering::Relaxed), PARTS);
        };
        shuttle::check_random(run, SCHEDULES);
        shuttle::check_pct(run, SCHEDULES, 3);
    }
}

/// With this many small parts, two workers take two at a time.
#[test]
fn groups_of_small_parts_are_in_order() {
    let run = || {
        let work = Doubling { more: 60, ..Doubling::default() };
        let mut machine = InOrder::of(work, Vec::new());
        drive(&mut machine, 2, &mut Unwatched).unwrap();
        assert_eq!(*machine.sum(), doubled(PARTS + 60));
        assert_eq!(machine.work().begun.load(Ordering::Relaxed), PARTS + 60);
        let work = Doubling { more: 60, refused: 40, ..Doubling::default() };
        let mut machine = InOrder::of(work, Vec::new());
        drive(&mut machine, 2, &mut Unwatched).unwrap_err();
        assert_eq!(*machine.sum(), doubled(40));
    };
    shuttle::check_random(run, SCHEDULES);
}

#[test]
fn all_threads_end_when_a_result_is_refused() {
    for (workers, refused) in [(1, 1), (1, 3), (2, 1), (2, 5), (3, PARTS)] {
        let run = move || {
            let work = Doubling { refused, ..Doubling::default() };
            let mut machine = InOrder::of(work, Vec::new());
            drive(&mut machine, workers, &mut Unwatched).unwrap_err();
            assert_eq!(*machine.sum(), doubled(refused));
        };
        shuttle::check_random(run, SCHEDULES);
        shuttle::check_pct(run, 4 * SCHEDULES, 3);
    }
}

#[test]
fn all_threads_end_when_the_caller_cancels() {
    struct Stop(usize);
    impl Progress for Stop {
        fn report(&mut self, _: u64, _: u64) -> bool {
            self.0 = self.0.saturating_sub(1);
            self.0 > 0
        }
    }
    for stop in [1, 3] {
        let run = move || {
            let mut machine = InOrder::of(Doubling::default(), Vec::new());
            let error = drive(&mut machine, 3, &mut Stop(stop)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Cancelled);
            assert_eq!(*machine.sum(), doubled(machine.sum().len()));
        };
        shuttle::check_random(run, SCHEDULES);
    }
}

#[test]
fn a_panic_ends_all_threads_and_reaches_the_caller() {
    for (workers, panics) in [(1, 1), (2, 1), (2, 4), (3, PARTS)] {
        let run = move || {
            let work = Doubling { panics, ..Doubling::default() };
            let mut machine = InOrder::of(work, Vec::new());
            let run = || drive(&mut machine, workers, &mut Unwatched);
            let panic = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
            assert_eq!(panic.downcast_ref::<&str>(), Some(&"part is bad"));
        };
        shuttle::check_random(run, SCHEDULES);
    }
}
