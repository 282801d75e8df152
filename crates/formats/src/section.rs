//! A part of another source, as a source and as a stream.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;
use std::sync::Arc;

use statelens_checkpoint::{Error, ReadAt, Result, try_alloc};

/// `len` bytes of another source from `start`.
#[derive(Debug, Clone)]
pub(crate) struct Section {
    source: Arc<dyn ReadAt>,
    start: u64,
    len: u64,
}

impl Section {
    /// Returns this part of the source, limited to its end.
    pub(crate) fn new(source: Arc<dyn ReadAt>, start: u64, len: u64) -> Self {
        let start = start.min(source.len());
        let len = len.min(source.len() - start);
        Self { source, start, len }
    }

    /// Returns a stream of the part from `at` on. `read` is set to the offset in the part up to
    /// which it was read.
    pub(crate) fn stream(self, at: u64, read: Rc<Cell<u64>>) -> SectionStream {
        let at = at.min(self.len);
        SectionStream { part: self, at, buffer: Vec::new(), used: 0, piece: FIRST, read }
    }
}

impl ReadAt for Section {
    fn len(&self) -> u64 {
        self.len
    }

    fn overhead(&self) -> u64 {
        self.source.overhead()
    }

    fn version(&self) -> Option<String> {
        self.source.version()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.len) {
            return Err(Error::io("a read past the end").at(offset));
        }
        self.source.read_at(self.start + offset, buffer)
    }
}

pub(crate) struct SectionStream {
    part: Section,
    at: u64,
    buffer: Vec<u8>,
    used: usize,
    piece: u64,
    read: Rc<Cell<u64>>,
}

/// The number of bytes per read: small at first, since most attempts fail early.
const FIRST: u64 = 512;
const PIECE: u64 = 64 << 10;

impl Read for SectionStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.used == self.buffer.len() {
            let len = self.piece.min(self.part.len - self.at);
            self.piece = PIECE.min(self.piece * 2);
            let more = len.saturating_sub(self.buffer.len() as u64);
            try_alloc::make_room(&mut self.buffer, more).map_err(io::Error::other)?;
            self.buffer.resize(len as usize, 0);
            self.part.read_at(self.at, &mut self.buffer).map_err(io::Error::other)?;
            self.at += len;
            self.used = 0;
        }
        let rest = &self.buffer[self.used..];
        let len = rest.len().min(into.len());
        into[..len].copy_from_slice(&rest[..len]);
        self.used += len;
        self.read.set(self.at - (self.buffer.len() - self.used) as u64);
        Ok(len)
    }
}

/// Reads up to `len` bytes from `at`, fewer at the end of the source.
pub(crate) fn some(source: &dyn ReadAt, at: u64, len: u64) -> Result<Vec<u8>> {
    let len = len.min(source.len().saturating_sub(at));
    let mut bytes = try_alloc::zeros(len)?;
    if len > 0 {
        source.read_at(at, &mut bytes)?;
    }
    Ok(bytes)
}

/// Reads exactly `N` bytes from `at`. Returns `None` if there are fewer.
pub(crate) fn exactly<const N: usize>(source: &dyn ReadAt, at: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let end = at.checked_add(N as u64)?;
    (end <= source.len()).then(|| source.read_at(at, &mut bytes).ok())??;
    Some(bytes)
}
