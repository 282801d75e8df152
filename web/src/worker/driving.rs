//! Feeds machines with what is read, and listens to the page meanwhile.

use std::rc::Rc;

use statelens_checkpoint::{FileSet, Result, Span};
use statelens_tensor::{Machine, Need};

use crate::worker::now;
use crate::worker::reading::Reader;
use crate::worker::session::Job;
use crate::worker::sources::Sources;

/// How long a machine may run without listening.
const SLICE: f64 = 40.0;

/// Looks at the clock between steps of work that takes long.
pub(super) struct Pulse {
    told: f64,
    listened: f64,
}

impl Pulse {
    pub(super) fn new() -> Self {
        Self { told: now(), listened: now() }
    }

    /// Listens to messages if that was long ago: reads that are answered at once, and work without
    /// reads, leave no room for them. True four times a second: then it is told how far it is.
    pub(super) async fn beat(&mut self) -> bool {
        let time = now();
        if time - self.listened >= SLICE {
            gloo_timers::future::TimeoutFuture::new(0).await;
            self.listened = now();
        }
        let tell = time - self.told >= 250.0;
        if tell {
            self.told = time;
        }
        tell
    }
}

/// Feeds machines, for a job: one after the other, from streams that go on where they were.
pub(super) struct Driver<'a> {
    readers: Vec<Reader>,
    job: &'a Job,
    pulse: Pulse,
}

impl<'a> Driver<'a> {
    /// Of what these are the sources of, as [`Machine::source`] counts them.
    pub(super) fn new(sources: &[&Rc<Sources>], job: &'a Job) -> Self {
        let readers = sources.iter().map(|sources| Reader::new(sources, job)).collect();
        Self { readers, job, pulse: Pulse::new() }
    }

    /// Feeds a machine until it is done, the job is stopped, or `each` fails. That is called after
    /// each step, and hears four times a second that it is time to tell how far it is.
    pub(super) async fn drive<M: Machine>(
        &mut self,
        machine: &mut M,
        mut each: impl AsyncFnMut(&mut M, bool) -> Result<()>,
    ) -> Result<()> {
        loop {
            self.job.check()?;
            match machine.need() {
                Need::Done => return Ok(()),
                Need::Step => machine.step()?,
                Need::Feed(span) => {
                    match self.piece(machine.source(), machine.files(), span).await {
                        Ok(piece) => machine.feed(&piece)?,
                        // What one action may fetch of a remote file was agreed: beyond that it ends.
                        Err(error) => machine.unread(error)?,
                    }
                }
            }
            let tell = self.pulse.beat().await;
            each(machine, tell).await?;
        }
    }

    /// The first bytes of a span, as many as there are at once.
    pub(super) async fn piece(
        &mut self,
        source: usize,
        files: &FileSet,
        span: Span,
    ) -> Result<Vec<u8>> {
        match self.readers.get_mut(source) {
            Some(reader) => reader.piece(files, span).await,
            None => files.read_vec(span.file, span.offset, span.len),
        }
    }

    /// As at the end of each step; whether it is time to tell how far it is.
    pub(super) async fn beat(&mut self) -> bool {
        self.pulse.beat().await
    }

    pub(super) async fn close(self) {
        for reader in self.readers {
            reader.close().await;
        }
    }
}

/// Feeds a machine until it is done or the job is stopped. `each` is called after each step, and
/// hears four times a second that it is time to tell how far it is.
pub(super) async fn drive<M: Machine>(
    machine: &mut M,
    sources: &[&Rc<Sources>],
    job: &Job,
    mut each: impl FnMut(&mut M, bool),
) -> Result<()> {
    let mut driver = Driver::new(sources, job);
    let each = async |machine: &mut M, tell: bool| {
        each(machine, tell);
        Ok(())
    };
    let ended = driver.drive(machine, each).await;
    driver.close().await;
    ended
}
