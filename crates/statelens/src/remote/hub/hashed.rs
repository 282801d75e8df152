//! Files of the Hub, hashed while they are read.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use statelens_checkpoint::{Error, ObjectHeader, ReadAt, Result};

use crate::content_hash::ContentHash;

/// Bytes that are read and hashed at a time.
const BUFFER: u64 = 8 << 20;

/// Bytes between two reads up to which they are fetched for the hash during the second read. Larger
/// gaps are fetched at the end, where the caller sees the progress.
const MAX_GAP: u64 = 16 << 20;

/// A file of the Hub that is not in the cache. While a verification runs, the bytes that it reads are
/// hashed, so that each is fetched once if they are read in order.
pub(crate) struct HashedFile {
    source: Arc<dyn ReadAt>,
    name: String,
    /// The hash that the Hub lists: a SHA-256, or that of a git object. `None` without one.
    expected: Option<String>,
    is_read: AtomicBool,
    running: Mutex<Option<RunningHash>>,
}

/// The hash of the first bytes of a file.
struct RunningHash {
    hash: ContentHash,
    /// Number of bytes hashed.
    at: u64,
}

impl HashedFile {
    /// Wraps a file, whose version is its hash.
    pub(super) fn new(source: Arc<dyn ReadAt>, name: &str) -> Self {
        let expected = source.version().filter(|hash| ContentHash::is_known(hash));
        let (is_read, running) = (AtomicBool::new(false), Mutex::new(None));
        Self { source, name: name.to_owned(), expected, is_read, running }
    }

    /// Returns the name of the file in its folder.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the hash that the Hub lists.
    pub(crate) fn expected(&self) -> Option<&str> {
        self.expected.as_deref()
    }

    /// Returns whether anything was read from the file.
    pub(crate) fn is_read(&self) -> bool {
        self.is_read.load(Ordering::Relaxed)
    }

    /// Starts a hash of the bytes that are read from now on.
    fn begin(&self) {
        *self.running() = self.empty();
    }

    /// Stops hashing.
    fn stop(&self) {
        *self.running() = None;
    }

    /// Returns the number of bytes that were not hashed yet.
    pub(crate) fn left(&self) -> u64 {
        let hashed = self.running().as_ref().map_or(0, |running| running.at);
        self.source.len().saturating_sub(hashed)
    }

    /// Hashes the rest of the file, and returns the hash in hexadecimal; `None` if the Hub lists none.
    /// `progress` gets numbers of bytes, and can cancel.
    pub(crate) fn finish(&self, progress: &mut dyn FnMut(u64) -> bool) -> Result<Option<String>> {
        let begun = self.running().take();
        let Some(mut running) = begun.or_else(|| self.empty()) else { return Ok(None) };
        running.advance(&self.source, self.source.len(), progress)?;
        Ok(Some(running.hash.hex()))
    }

    fn empty(&self) -> Option<RunningHash> {
        let hash = ContentHash::like(self.expected.as_deref()?, self.source.len());
        Some(RunningHash { hash, at: 0 })
    }

    fn running(&self) -> MutexGuard<'_, Option<RunningHash>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunningHash {
    /// Reads and hashes the bytes up to `end`.
    fn advance(
        &mut self,
        source: &Arc<dyn ReadAt>,
        end: u64,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<()> {
        let mut buffer = vec![0; end.saturating_sub(self.at).min(BUFFER) as usize];
        while self.at < end {
            let len = (end - self.at).min(BUFFER) as usize;
            let piece = &mut buffer[..len];
            source.read_at(self.at, piece)?;
            self.hash.update(piece);
            self.at += len as u64;
            if !progress(len as u64) {
                return Err(Error::cancelled());
            }
        }
        Ok(())
    }

    /// Hashes bytes that were read from `offset`, if they follow those before, or nearly do.
    fn pass(&mut self, source: &Arc<dyn ReadAt>, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        if end <= self.at || offset.saturating_sub(self.at) > MAX_GAP {
            return;
        }
        // The read itself succeeded, so an error in the gap is left to the end of the verification.
        if self.advance(source, offset, &mut |_| true).is_err() {
            return;
        }
        let from = (self.at - offset) as usize;
        self.hash.update(&bytes[from..]);
        self.at = end;
    }
}

impl ReadAt for HashedFile {
    fn len(&self) -> u64 {
        self.source.len()
    }

    fn version(&self) -> Option<String> {
        self.source.version()
    }

    fn described(&self) -> Result<Option<ObjectHeader>> {
        self.source.described()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.is_read.store(true, Ordering::Relaxed);
        self.source.read_at(offset, buffer)?;
        if let Some(running) = self.running().as_mut() {
            running.pass(&self.source, offset, buffer);
        }
        Ok(())
    }
}

impl fmt::Debug for HashedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HashedFile({:?})", self.source)
    }
}

/// The files of a repository that a checkpoint may be read from.
#[derive(Debug, Default)]
pub(crate) struct HubSources {
    /// Those in the local cache.
    pub(crate) cached: Vec<Arc<crate::files::FileSource>>,
    /// Those that are fetched.
    pub(crate) fetched: Vec<Arc<HashedFile>>,
    /// Whether the checkpoint may also be read from files that are not in the repository.
    pub(crate) has_others: bool,
}

impl HubSources {
    /// Starts hashes of all fetched files. Dropping the result stops them.
    pub(crate) fn hashing(&self) -> Hashing<'_> {
        self.fetched.iter().for_each(|file| file.begin());
        Hashing(self)
    }
}

/// A verification during which fetched bytes are hashed.
pub(crate) struct Hashing<'a>(pub(crate) &'a HubSources);

impl Drop for Hashing<'_> {
    fn drop(&mut self) {
        self.0.fetched.iter().for_each(|file| file.stop());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The contents of a file, and the ranges that were read.
    #[derive(Debug)]
    struct Counted {
        bytes: Vec<u8>,
        reads: Mutex<Vec<(u64, usize)>>,
    }

    #[derive(Debug)]
    struct Shared(Arc<Counted>);

    impl ReadAt for Shared {
        fn len(&self) -> u64 {
            self.0.bytes.len() as u64
        }

        fn version(&self) -> Option<String> {
            let mut hash = ContentHash::like(&"0".repeat(64), 0);
            hash.update(&self.0.bytes);
            Some(hash.hex())
        }

        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
            self.0.reads.lock().unwrap().push((offset, buffer.len()));
            let at = offset as usize;
            buffer.copy_from_slice(&self.0.bytes[at..at + buffer.len()]);
            Ok(())
        }
    }

    fn file(len: usize) -> (Arc<Counted>, HashedFile) {
        let bytes = (0..len).map(|at| (at % 251) as u8).collect();
        let counted = Arc::new(Counted { bytes, reads: Mutex::default() });
        let file = HashedFile::new(Arc::new(Shared(counted.clone())), "x");
        (counted, file)
    }

    /// Reads ranges while hashing, and returns whether the hash is right, and the bytes read after.
    fn hashed(len: usize, ranges: &[(u64, usize)]) -> (bool, u64, usize) {
        let (counted, file) = file(len);
        file.begin();
        for (offset, len) in ranges {
            file.read_at(*offset, &mut vec![0; *len]).unwrap();
        }
        let left = file.left();
        let found = file.finish(&mut |_| true).unwrap();
        let read = counted.reads.lock().unwrap().iter().map(|(_, len)| len).sum();
        (found.as_deref() == file.expected(), left, read)
    }

    #[test]
    fn bytes_that_are_read_in_order_are_read_once() {
        assert_eq!(hashed(100, &[(0, 40), (40, 60)]), (true, 0, 100));
        // The header was read before, and there is a gap.
        assert_eq!(hashed(100, &[(8, 30), (40, 60)]), (true, 0, 100));
        // Again, overlapping, and backwards.
        assert_eq!(hashed(100, &[(0, 50), (0, 50), (30, 40)]), (true, 30, 170));
        assert_eq!(hashed(100, &[(60, 40), (0, 60)]), (true, 0, 160));
        assert_eq!(hashed(100, &[]), (true, 100, 100));
        let far = MAX_GAP as usize + 1;
        assert_eq!(hashed(far + 9, &[(far as u64, 9)]), (true, far as u64 + 9, far + 18));
    }

    #[test]
    fn hashing_can_be_cancelled_and_begun_again() {
        let (_, file) = file(10);
        assert!(!file.is_read());
        file.begin();
        file.read_at(0, &mut [0; 4]).unwrap();
        assert!(file.finish(&mut |_| false).is_err());
        file.begin();
        file.stop();
        assert_eq!(file.left(), 10);
        assert_eq!(file.finish(&mut |_| true).unwrap().as_deref(), file.expected());
        assert!(file.is_read());
    }
}
