//! A file in memory that counts the bytes read from it, for tests.

use std::sync::atomic::{AtomicU64, Ordering};

use statelens_checkpoint::{Memory, ReadAt, Result};

#[derive(Debug)]
pub(crate) struct CountedFile {
    bytes: Memory,
    reads: AtomicU64,
    read: AtomicU64,
}

impl CountedFile {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        let count = AtomicU64::default;
        Self { bytes: Memory::from(bytes), reads: count(), read: count() }
    }

    /// Returns the number of bytes read; bytes that were read again count again.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Fails if the file was read more than `times` times, or with more than one read per 64 bytes.
    #[track_caller]
    pub(crate) fn assert_read_at_most(&self, times: u64, what: &str) {
        let (len, read) = (self.bytes.len(), self.bytes_read());
        let reads = self.reads.load(Ordering::Relaxed);
        let most = times * len.max(4096);
        assert!(read <= most, "{what}: {read} bytes were read of a file of {len}");
        assert!(reads <= most / 64, "{what}: {reads} reads of a file of {len} bytes");
    }
}

impl ReadAt for CountedFile {
    fn len(&self) -> u64 {
        self.bytes.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        self.bytes.read_at(offset, buffer)
    }
}
