//! What every state machine of the core is to whoever drives it, and the driver for callers that
//! may block.

use statelens_checkpoint::{Error, FileSet, Progress, Result, Span, room};

/// Receives bytes as they come.
pub type Out<'a> = dyn FnMut(&[u8]) -> Result<()> + 'a;

/// What a machine waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// The bytes of this span, in order, in pieces of any size. It shrinks as it is fed.
    Feed(Span),
    /// Nothing that has to be read: a call of `step`.
    Step,
    /// Nothing at all: it is done.
    Done,
}

/// Reads nothing itself: says which bytes it needs, and is fed them.
///
/// [`drive`] feeds it from files. Whoever gets bytes in another way does as it does: looks at what
/// is needed, brings that, and looks again until nothing is.
pub trait Machine {
    /// What it waits for.
    fn need(&self) -> Need;

    /// The files that the span that it needs is of.
    fn files(&self) -> &FileSet;

    /// Which checkpoint those files are of: 0, and 1 for the second one of a comparison.
    fn source(&self) -> usize {
        0
    }

    /// Takes the next bytes of the span that it needs, not more than that.
    fn feed(&mut self, bytes: &[u8]) -> Result<()>;

    /// Goes on where no bytes are needed.
    fn step(&mut self) -> Result<()>;

    /// Hears that the bytes that it needs can't be read, and fails unless it can do without.
    fn unread(&mut self, error: Error) -> Result<()> {
        Err(error)
    }

    /// Bytes that are done, and all of them.
    fn progress(&self) -> (u64, u64);
}

/// A good size for a [`Buffer`].
pub const BUFFER: usize = 1 << 20;

/// What [`drive`] reads into; memory is taken as it is needed.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    size: usize,
}

impl Buffer {
    /// Of so many bytes, at least 1.
    pub fn new(size: usize) -> Self {
        Self { bytes: Vec::new(), size: size.max(1) }
    }

    /// The first bytes of a span, as many as fit.
    fn read(&mut self, files: &FileSet, span: Span) -> Result<&[u8]> {
        files.check(span)?;
        let len = span.len.min(self.size as u64) as usize;
        if self.bytes.len() < len {
            self.bytes = room::zeros(len as u64)?;
        }
        files.read(span.file, span.offset, &mut self.bytes[..len])?;
        Ok(&self.bytes[..len])
    }
}

/// Feeds a machine until it is done, or `progress` says stop.
pub fn drive(
    machine: &mut (impl Machine + ?Sized),
    buffer: &mut Buffer,
    progress: &mut dyn Progress,
) -> Result<()> {
    loop {
        match machine.need() {
            Need::Feed(span) => match buffer.read(machine.files(), span) {
                Ok(bytes) => machine.feed(bytes)?,
                Err(error) if error.code() == room::CODE => return Err(error),
                Err(error) => machine.unread(error)?,
            },
            Need::Step => machine.step()?,
            Need::Done => return Ok(()),
        }
        let (done, total) = machine.progress();
        progress.check(done, total)?;
    }
}
