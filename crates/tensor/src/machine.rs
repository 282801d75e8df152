//! The interface of all state machines of the core, and a driver for callers that may block.

use std::ops::DerefMut;

use statelens_checkpoint::{Error, FileSet, Progress, Result, Span, try_alloc};

pub type Out<'a> = dyn FnMut(&[u8]) -> Result<()> + 'a;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// The bytes of this span, in order, in pieces of any size. It shrinks as it is fed.
    Feed(Span),
    /// A call of `step`; no bytes are needed.
    Step,
    /// Nothing: it has finished.
    Done,
}

/// A state machine that reads nothing itself, but names the bytes it needs and is fed with them.
///
/// [`drive`] feeds it from files. Callers that get bytes in another way use the same loop: call
/// `need`, provide the bytes, and repeat until done.
pub trait Machine {
    /// Returns what the machine waits for.
    fn need(&self) -> Need;

    /// Returns the files to which the needed span refers.
    fn files(&self) -> &FileSet;

    /// Returns the index of the checkpoint of those files: 0, or 1 for the second one of a
    /// comparison.
    fn source(&self) -> usize {
        0
    }

    /// Takes the next bytes of the needed span, at most as many as its length.
    fn feed(&mut self, bytes: &[u8]) -> Result<()>;

    /// Continues when no bytes are needed.
    fn step(&mut self) -> Result<()>;

    /// Handles a failure to read the needed bytes; returns the error unless the machine can go on
    /// without them.
    fn unread(&mut self, error: Error) -> Result<()> {
        Err(error)
    }

    /// Returns the bytes done so far, and the total.
    fn progress(&self) -> (u64, u64);
}

/// A machine that owns another one is driven as that one.
impl<M: DerefMut<Target: Machine>> Machine for M {
    fn need(&self) -> Need {
        (**self).need()
    }

    fn files(&self) -> &FileSet {
        (**self).files()
    }

    fn source(&self) -> usize {
        (**self).source()
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<()> {
        (**self).feed(bytes)
    }

    fn step(&mut self) -> Result<()> {
        (**self).step()
    }

    fn unread(&mut self, error: Error) -> Result<()> {
        (**self).unread(error)
    }

    fn progress(&self) -> (u64, u64) {
        (**self).progress()
    }
}

/// A good size for a [`Buffer`].
pub const BUFFER: usize = 1 << 20;

/// The read buffer of [`drive`]; memory is allocated on demand.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    size: usize,
}

impl Buffer {
    /// Creates a buffer of `size` bytes (at least 1).
    pub fn new(size: usize) -> Self {
        Self { bytes: Vec::new(), size: size.max(1) }
    }

    /// Reads the first bytes of a span, as many as fit.
    fn read(&mut self, files: &FileSet, span: Span) -> Result<&[u8]> {
        files.check(span)?;
        let len = span.len.min(self.size as u64) as usize;
        if self.bytes.len() < len {
            self.bytes = try_alloc::zeros(len as u64)?;
        }
        files.read(span.file, span.offset, &mut self.bytes[..len])?;
        Ok(&self.bytes[..len])
    }
}

/// Feeds a machine until it has finished, or `progress` cancels it.
pub fn drive(
    machine: &mut (impl Machine + ?Sized),
    buffer: &mut Buffer,
    progress: &mut dyn Progress,
) -> Result<()> {
    loop {
        match machine.need() {
            Need::Feed(span) => match buffer.read(machine.files(), span) {
                Ok(bytes) => machine.feed(bytes)?,
                Err(error) if error.code() == try_alloc::CODE => return Err(error),
                Err(error) => machine.unread(error)?,
            },
            Need::Step => machine.step()?,
            Need::Done => return Ok(()),
        }
        let (done, total) = machine.progress();
        progress.check(done, total)?;
    }
}
