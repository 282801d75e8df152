//! The user's files as sources of bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use js_sys::Uint8Array;
use statelens_checkpoint::{Error, ReadAt, Result};
use web_sys::{Blob, File, FileReaderSync};

/// Longer reads are split: for each read, the browser allocates garbage of its size.
const MAX_READ: u64 = 4 << 20;

/// A file on disk. Clones share it.
#[derive(Debug, Clone)]
pub struct BlobSource(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: File,
    len: u64,
    read_counter: Arc<ReadCounter>,
}

/// Counts the bytes and reads of several files.
#[derive(Debug, Default)]
pub struct ReadCounter {
    bytes: AtomicU64,
    calls: AtomicU64,
}

impl ReadCounter {
    /// Counts a read.
    pub(crate) fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
        self.calls.fetch_add(1, Relaxed);
    }

    /// Returns the bytes and the number of reads.
    pub fn so_far(&self) -> (u64, u64) {
        (self.bytes.load(Relaxed), self.calls.load(Relaxed))
    }
}

impl BlobSource {
    /// Wraps a file; its reads are counted in `read_counter`.
    pub fn new(file: File, read_counter: &Arc<ReadCounter>) -> Self {
        let len = file.size() as u64;
        Self(Arc::new(Inner { file, len, read_counter: read_counter.clone() }))
    }

    /// Wraps a file with a counter of its own.
    pub fn alone(file: File) -> Self {
        Self::new(file, &Arc::default())
    }

    /// Returns the file itself, for another worker.
    pub fn file(&self) -> &File {
        &self.0.file
    }

    /// Returns a slice of the file, which moves no bytes.
    ///
    /// # Errors
    /// If the file was changed.
    pub fn slice(&self, offset: u64, len: u64) -> Result<Blob> {
        self.0
            .file
            .slice_with_f64_and_f64(offset as f64, (offset + len) as f64)
            .map_err(|_| changed_file_error(&self.0.file.name()))
    }
}

impl ReadAt for BlobSource {
    fn len(&self) -> u64 {
        self.0.len
    }

    fn overhead(&self) -> u64 {
        1 << 20
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let reader = FileReaderSync::new()
            .map_err(|_| Error::io("this browser can\u{2019}t read files in a worker"))?;
        let mut at = offset;
        for piece in buffer.chunks_mut(MAX_READ as usize) {
            let blob = self.slice(at, piece.len() as u64)?;
            self.0.read_counter.add(piece.len() as u64);
            let bytes = reader
                .read_as_array_buffer(&blob)
                .map_err(|_| changed_file_error(&self.0.file.name()))?;
            let bytes = Uint8Array::new(&bytes);
            if bytes.length() as usize != piece.len() {
                return Err(Error::io("the file is shorter than it was when it was opened").at(at));
            }
            bytes.copy_to(piece);
            at += piece.len() as u64;
        }
        Ok(())
    }
}

/// Returns the error for a file that was changed, moved or removed after it was chosen.
pub fn changed_file_error(name: &str) -> Error {
    Error::io("the file was changed, moved or removed since it was opened")
        .in_file(name)
        .advice("Open it again.")
}
