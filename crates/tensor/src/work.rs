//! Machines that process the parts of a task one after the other. The parts are known from the
//! start, so that a driver with several processors can process several at once.

mod pieces;

use std::fmt;

use statelens_checkpoint::{Error, FileSet, Result};

use crate::{Machine, Need};

pub use pieces::Pieces;

/// A task that consists of parts, each with its own machine. The result of a part depends on that
/// part alone.
pub trait Work {
    type Part: Machine;
    type Found;
    type Sum;

    fn parts(&self) -> usize;

    /// Returns the size of a part in bytes, as counted by progress.
    fn size(&self, part: usize) -> u64;

    /// Returns the machine of a part; `None` if nothing has to be read for it.
    fn begin(&self, part: usize) -> Result<Option<Self::Part>>;

    /// Returns the result of a part. `read` is an error if the part could not be read completely.
    fn end(&self, part: usize, machine: Option<Self::Part>, read: Result<()>) -> Self::Found;

    /// Adds the result of a part; called in order. Fails if the whole task must end.
    fn take(&self, sum: &mut Self::Sum, part: usize, found: Self::Found) -> Result<()>;
}

/// Processes the parts of a [`Work`] one after the other.
pub struct InOrder<W: Work> {
    work: W,
    sum: W::Sum,
    /// The part that is being processed, or is next.
    next: usize,
    current: Option<Box<W::Part>>,
    /// Number of bytes of the completed parts, and of all parts.
    done: u64,
    total: u64,
    /// An empty set of files, for parts that do not need any.
    nothing: FileSet,
}

impl<W: Work> InOrder<W> {
    /// Creates a machine for a task, with an empty combined result.
    pub fn of(work: W, sum: W::Sum) -> Self {
        let sizes = (0..work.parts()).map(|part| work.size(part));
        let total = sizes.fold(0, u64::saturating_add);
        let (next, current, done) = (0, None, 0);
        Self { work, sum, next, current, done, total, nothing: FileSet::default() }
    }

    /// Returns the task, for processing some of its parts for another driver.
    pub fn work(&self) -> &W {
        &self.work
    }

    /// Returns the task, for changing its settings before it begins.
    pub fn work_mut(&mut self) -> &mut W {
        &mut self.work
    }

    pub fn sum(&self) -> &W::Sum {
        &self.sum
    }

    /// Returns the combined result so far, for taking parts out of it.
    pub fn sum_mut(&mut self) -> &mut W::Sum {
        &mut self.sum
    }

    pub fn into_parts(self) -> (W, W::Sum) {
        (self.work, self.sum)
    }

    /// Returns the index of the part that is being processed, or is next.
    pub fn next(&self) -> usize {
        self.next
    }

    /// Returns the machine of the part that is being processed.
    pub fn current_mut(&mut self) -> Option<&mut W::Part> {
        self.current.as_deref_mut()
    }

    /// Returns the task and its combined result separately, for a driver that processes several
    /// parts at once.
    pub fn split(&mut self) -> (&W, WorkSums<'_, W>) {
        let Self { work, sum, next, done, .. } = self;
        (work, WorkSums { sum, next, done })
    }

    fn begin(&mut self) -> Result<()> {
        if self.next >= self.work.parts() {
            return Ok(());
        }
        match self.work.begin(self.next) {
            Ok(Some(machine)) => {
                self.current = Some(Box::new(machine));
                self.after(Ok(()))
            }
            Ok(None) => self.end(None, Ok(())),
            Err(error) => self.end(None, Err(error)),
        }
    }

    /// Ends the current part if it is complete or has failed.
    fn after(&mut self, outcome: Result<()>) -> Result<()> {
        let Some(machine) = &self.current else { return outcome };
        let outcome = outcome.and_then(|()| reachable(&**machine));
        match (outcome, machine.need()) {
            (Ok(()), Need::Feed(_) | Need::Step) => Ok(()),
            (outcome, _) => {
                let machine = self.current.take();
                self.end(machine, outcome)
            }
        }
    }

    fn end(&mut self, machine: Option<Box<W::Part>>, read: Result<()>) -> Result<()> {
        let Self { work, sum, next, done, .. } = self;
        let found = work.end(*next, machine.map(|machine| *machine), read);
        WorkSums { sum, next, done }.take(work, found)
    }
}

/// The combined result of an [`InOrder`].
pub struct WorkSums<'a, W: Work> {
    sum: &'a mut W::Sum,
    next: &'a mut usize,
    done: &'a mut u64,
}

impl<W: Work> WorkSums<'_, W> {
    pub fn next(&self) -> usize {
        *self.next
    }

    pub fn sum(&mut self) -> &mut W::Sum {
        self.sum
    }

    pub fn take(&mut self, work: &W, found: W::Found) -> Result<()> {
        let part = *self.next;
        *self.next += 1;
        *self.done = self.done.saturating_add(work.size(part));
        work.take(self.sum, part, found)
    }
}

/// Fails if a machine needs bytes beyond the end of its file, so that callers do not have to check
/// that.
fn reachable(machine: &impl Machine) -> Result<()> {
    match machine.need() {
        Need::Feed(span) => machine.files().check(span),
        Need::Step | Need::Done => Ok(()),
    }
}

impl<W: Work> Machine for InOrder<W> {
    fn need(&self) -> Need {
        match &self.current {
            Some(machine) => machine.need(),
            None if self.next < self.work.parts() => Need::Step,
            None => Need::Done,
        }
    }

    fn files(&self) -> &FileSet {
        self.current.as_ref().map_or(&self.nothing, |machine| machine.files())
    }

    fn source(&self) -> usize {
        self.current.as_ref().map_or(0, |machine| machine.source())
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(machine) = &mut self.current else {
            return Err(Error::io("bytes were fed where none are needed"));
        };
        let fed = machine.feed(bytes);
        self.after(fed)
    }

    fn step(&mut self) -> Result<()> {
        let Some(machine) = &mut self.current else { return self.begin() };
        let stepped = machine.step();
        self.after(stepped)
    }

    fn unread(&mut self, error: Error) -> Result<()> {
        self.after(Err(error))
    }

    fn progress(&self) -> (u64, u64) {
        let within = self.current.as_ref().map_or(0, |machine| {
            let size = self.work.size(self.next);
            machine.progress().0.min(size)
        });
        (self.done.saturating_add(within), self.total)
    }
}

impl<W: Work> fmt::Debug for InOrder<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InOrder({} of {})", self.next, self.work.parts())
    }
}

/// Declares the machine of a [`Work`]: an [`InOrder`] that has its own constructors and results.
#[macro_export]
macro_rules! in_order {
    ($(#[$attribute:meta])* pub struct $name:ident $(<$life:lifetime>)? ($work:ty);) => {
        $(#[$attribute])*
        #[derive(Debug)]
        pub struct $name $(<$life>)? ($crate::InOrder<$work>);

        impl $(<$life>)? ::std::ops::Deref for $name $(<$life>)? {
            type Target = $crate::InOrder<$work>;

            fn deref(&self) -> &Self::Target {
                &self.0
            }
        }

        impl $(<$life>)? ::std::ops::DerefMut for $name $(<$life>)? {
            fn deref_mut(&mut self) -> &mut Self::Target {
                &mut self.0
            }
        }
    };
}
