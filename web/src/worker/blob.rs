//! The user's files as sources of bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use js_sys::Uint8Array;
use statelens_checkpoint::{Error, ReadAt, Result};
use web_sys::{Blob, File, FileReaderSync};

/// More than this is read in pieces: a browser makes garbage of each as large as it.
const PIECE: u64 = 4 << 20;

/// A file of the disk. Clones share it.
#[derive(Debug, Clone)]
pub struct BlobSource(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: File,
    len: u64,
    spent: Arc<Spent>,
}

/// What was read of some files.
#[derive(Debug, Default)]
pub struct Spent {
    bytes: AtomicU64,
    calls: AtomicU64,
}

impl Spent {
    /// Bytes and calls.
    #[must_use]
    pub fn so_far(&self) -> (u64, u64) {
        (self.bytes.load(Relaxed), self.calls.load(Relaxed))
    }
}

impl BlobSource {
    /// A file, and where it is noted what is read of it.
    #[must_use]
    pub fn new(file: File, spent: &Arc<Spent>) -> Self {
        let len = file.size() as u64;
        Self(Arc::new(Inner { file, len, spent: spent.clone() }))
    }

    /// One that is read by itself.
    #[must_use]
    pub fn alone(file: File) -> Self {
        Self::new(file, &Arc::default())
    }

    /// The file itself, for another worker.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.0.file
    }

    /// A slice of the file, which moves no bytes.
    ///
    /// # Errors
    /// If the file is not what it was.
    pub fn slice(&self, offset: u64, len: u64) -> Result<Blob> {
        self.0
            .file
            .slice_with_f64_and_f64(offset as f64, (offset + len) as f64)
            .map_err(|_| gone(&self.0.file.name()))
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
            .map_err(|_| Error::io("this browser reads no files in a worker"))?;
        let mut at = offset;
        for piece in buffer.chunks_mut(PIECE as usize) {
            let blob = self.slice(at, piece.len() as u64)?;
            self.0.spent.bytes.fetch_add(piece.len() as u64, Relaxed);
            self.0.spent.calls.fetch_add(1, Relaxed);
            let bytes =
                reader.read_as_array_buffer(&blob).map_err(|_| gone(&self.0.file.name()))?;
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

/// What a browser says when a file was changed, moved or removed after it was chosen.
#[must_use]
pub fn gone(name: &str) -> Error {
    Error::io("the file was changed, moved or removed since it was opened")
        .in_file(name)
        .advice("Open it again.")
}
