//! Long computations in slices, so that a program with one thread can handle input between them.
//!
//! Such a computation is an `async` function that awaits nothing but [`pause`] every few thousand
//! items. A caller that needs the result at once runs it with [`finish`].

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

/// Number of items that take long enough to pause after them: about a millisecond.
pub const ITEMS: usize = 2_048;

/// A computation that is run in slices.
pub struct Sliced<'a, T>(Pin<Box<dyn Future<Output = T> + 'a>>);

impl<'a, T> Sliced<'a, T> {
    /// Wraps a computation that pauses.
    pub fn new(work: impl Future<Output = T> + 'a) -> Self {
        Self(Box::pin(work))
    }

    /// Continues until `pauses` pauses have passed. Returns the result once it is complete.
    pub fn run(&mut self, pauses: usize) -> Option<T> {
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..=pauses {
            if let Poll::Ready(result) = self.0.as_mut().poll(&mut context) {
                return Some(result);
            }
        }
        None
    }
}

/// Runs a computation that pauses, without pauses.
pub fn finish<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(result) = work.as_mut().poll(&mut context) {
            return result;
        }
    }
}

/// Lets the slice end here.
pub async fn pause() {
    let mut has_paused = false;
    poll_fn(|_| match std::mem::replace(&mut has_paused, true) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

/// Pauses after a pass over many items that takes little time for each, in proportion to it.
pub async fn pause_after(items: usize) {
    for _ in 0..=items / (8 * ITEMS) {
        pause().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_for_the_given_number_of_pauses() {
        let count = std::cell::Cell::new(0);
        let mut work = Sliced::new(async {
            for _ in 0..10 {
                count.set(count.get() + 1);
                pause().await;
            }
            "done"
        });
        assert_eq!((work.run(2), count.get()), (None, 3));
        assert_eq!((work.run(0), count.get()), (None, 4));
        assert_eq!((work.run(100), count.get()), (Some("done"), 10));
        assert_eq!(finish(async { pause().await }), ());
    }
}
