//! Machines that do one part of a work after the other. What each part needs is known from the
//! start, so that a driver with several processors may do parts at once.

use std::fmt;

use statelens_checkpoint::{Error, FileSet, Result};
use statelens_tensor::{Machine, Need};

/// A work that falls into parts, each with a machine of its own. What becomes of a part depends on
/// that part alone.
pub trait Work {
    /// The machine for a part.
    type Part: Machine;
    /// What came of a part.
    type Found;
    /// What all parts come to.
    type Sum;

    /// How many parts there are.
    fn parts(&self) -> usize;

    /// Bytes of a part, as progress counts them.
    fn size(&self, part: usize) -> u64;

    /// The machine for a part; `None` if nothing of it is to be read.
    fn begin(&self, part: usize) -> Result<Option<Self::Part>>;

    /// What came of a part, read to its end, or to where it could not be.
    fn end(&self, part: usize, machine: Option<Self::Part>, read: Result<()>) -> Self::Found;

    /// Adds what came of a part. They come in order. Fails if that is the end of all.
    fn take(&self, sum: &mut Self::Sum, part: usize, found: Self::Found) -> Result<()>;
}

/// Does the parts of a [`Work`] one after the other.
pub struct InOrder<W: Work> {
    pub(crate) work: W,
    pub(crate) sum: W::Sum,
    /// The part that is being read, or comes next.
    pub(crate) next: usize,
    pub(crate) current: Option<Box<W::Part>>,
    /// Bytes of the parts that are done, and of all.
    done: u64,
    total: u64,
    /// Of no file: what nothing is needed of.
    nothing: FileSet,
}

impl<W: Work> InOrder<W> {
    /// A work with what its parts come to, which is nothing yet.
    pub fn of(work: W, sum: W::Sum) -> Self {
        let sizes = (0..work.parts()).map(|part| work.size(part));
        let total = sizes.fold(0, u64::saturating_add);
        let (next, current, done) = (0, None, 0);
        Self { work, sum, next, current, done, total, nothing: FileSet::default() }
    }

    /// The parts, for one that does some of them for another driver.
    pub fn work(&self) -> &W {
        &self.work
    }

    /// The parts and where what comes of them goes, for a driver that does several at once.
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

    /// Ends the part if it is done, or can't be.
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

/// What the parts of a [`InOrder`] come to.
pub struct WorkSums<'a, W: Work> {
    sum: &'a mut W::Sum,
    next: &'a mut usize,
    done: &'a mut u64,
}

impl<W: Work> WorkSums<'_, W> {
    /// The part that comes next.
    pub fn next(&self) -> usize {
        *self.next
    }

    /// What they come to so far.
    pub fn sum(&mut self) -> &mut W::Sum {
        self.sum
    }

    /// Takes what came of the next part.
    pub fn take(&mut self, work: &W, found: W::Found) -> Result<()> {
        let part = *self.next;
        *self.next += 1;
        *self.done = self.done.saturating_add(work.size(part));
        work.take(self.sum, part, found)
    }
}

/// Fails if a machine needs what its file does not have, so that whoever feeds it need not know
/// where files end.
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
