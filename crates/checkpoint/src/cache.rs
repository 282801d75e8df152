//! The cache of a set of files. Structure is read through it, weights bypass it.
//!
//! There is one cache per `FileSet` (8 MiB, or 32 MiB if reads are expensive); longer reads bypass
//! it. A source reports the cost of a read in bytes (`ReadAt::overhead`: 0 on disk, 1 MiB in the
//! browser). The cache derives from it how far to read ahead. Readers keep parsed objects, never
//! blocks of a file.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Error, ObjectHeader, ReadAt, Result, order, try_alloc};

/// Bytes cached for all files of a set together where each read is expensive. If the cache were
/// smaller than the structure of a file, the structure would be read again and again.
const KEPT: usize = 32 << 20;
/// The same where reads are cheap ([`ReadAt::overhead`]): the operating system caches files, too.
const KEPT_AT_HAND: usize = 8 << 20;
/// Block size of the cache in bytes. Neighbouring blocks are read together. Some formats scatter
/// their structure between the weights, so larger blocks would mostly read bytes that aren't
/// needed.
pub const BLOCK: u64 = 64 << 10;
/// Maximum number of blocks per read, of a local file and of one on a server.
const MAX_BLOCKS: u64 = 16;
const MAX_REMOTE: u64 = 32;
/// The number of cache hits since the last read from which the file counts as densely read.
const DENSE: u32 = 8;
/// The first reads of a local file are smaller, just enough to recognise its format: of most files
/// in a large folder nothing else is read.
const GLANCE: u64 = 20 << 10;
const GLANCES: u32 = 2;

/// The structure of one file of a set, which is read in many small reads close together.
///
/// A read may cost as much as transferring hundreds of kilobytes ([`ReadAt::overhead`]), and
/// reading far ahead is wasteful where gigabytes of weights separate two headers. So the number of
/// blocks per read doubles while reads go forward, and returns to one after a jump. A local file
/// that fits into the cache is read in large pieces, in any order. Reads larger than a quarter of
/// the cache bypass it.
pub struct Structure {
    cache: Arc<Cache>,
    source: Arc<dyn ReadAt>,
    /// Its number in the cache.
    file: u32,
    remote: bool,
    /// Size of the shared cache that this file needs.
    kept: usize,
    touched: AtomicBool,
}

/// Cached bytes of the files of a set.
#[derive(Default)]
pub(crate) struct Cache(Mutex<CachedPieces>);

#[derive(Default)]
struct CachedPieces {
    /// Cached pieces, by file and first byte.
    by_start: BTreeMap<(u32, u64), CachedPiece>,
    /// Bytes in all pieces, and their limit.
    bytes: usize,
    max_bytes: usize,
    clock: u64,
    /// The piece that was returned last; most often it is the next one, too.
    last: Option<(u32, u64, Arc<Vec<u8>>)>,
    /// How each file has been read so far, by its number.
    files: Vec<Course>,
}

struct CachedPiece {
    used: u64,
    bytes: Arc<Vec<u8>>,
}

/// How a file has been read so far.
#[derive(Default, Clone, Copy)]
struct Course {
    reads: u32,
    /// The number of blocks in the last read, and the offset after them.
    run: u64,
    next: u64,
    /// Cache hits since that read.
    hits: u32,
}

impl Structure {
    /// Returns bytes around `offset` and the offset of the first of them: the cached piece that
    /// holds it, or else the blocks worth reading at once for a read that ends before `end`.
    pub fn piece(&self, offset: u64, end: u64) -> Result<(u64, Arc<Vec<u8>>)> {
        self.touch(true);
        let mut pieces = self.cache.lock();
        if let Some(found) = pieces.get(self.file, offset) {
            return Ok(found);
        }
        if offset >= self.len() {
            return Err(Error::io("a read past the end").at(offset));
        }
        let (start, end) = self.around(&mut pieces, offset, end);
        // The lock is released during the read; at worst another thread reads the same bytes.
        drop(pieces);
        let mut bytes = try_alloc::zeros(end - start)?;
        self.source.read_at(start, &mut bytes)?;
        let bytes = Arc::new(bytes);
        self.cache.lock().keep(self.file, start, bytes.clone());
        Ok((start, bytes))
    }

    /// Returns whether the whole file fits into the cache.
    pub fn is_kept_whole(&self) -> bool {
        self.source.len() <= self.kept as u64
    }

    /// Returns whether the file is on a server.
    pub(crate) fn is_remote(&self) -> bool {
        self.remote
    }

    pub(crate) fn new(cache: &Arc<Cache>, source: Arc<dyn ReadAt>, remote: bool) -> Self {
        let kept = if remote || source.overhead() > 0 { KEPT } else { KEPT_AT_HAND };
        let mut pieces = cache.lock();
        let file = pieces.files.len() as u32;
        pieces.files.push(Course::default());
        pieces.max_bytes = pieces.max_bytes.max(kept);
        drop(pieces);
        Self { cache: cache.clone(), source, file, remote, kept, touched: AtomicBool::new(false) }
    }

    /// Sets or clears the mark that the file has been read from.
    pub(crate) fn touch(&self, touched: bool) {
        self.touched.store(touched, Relaxed);
    }

    pub(crate) fn is_touched(&self) -> bool {
        self.touched.load(Relaxed)
    }

    /// Returns the range to read for an offset that is not cached.
    fn around(&self, pieces: &mut CachedPieces, offset: u64, wanted: u64) -> (u64, u64) {
        let (before, after) = pieces.gap(self.file, offset);
        let Some(course) = pieces.files.get_mut(self.file as usize) else {
            return (offset, offset);
        };
        let most = if self.remote { MAX_REMOTE } else { MAX_BLOCKS };
        let needed = wanted.saturating_sub(offset - offset % BLOCK).div_ceil(BLOCK);
        let aligned = |size: u64| (offset - offset % size).max(before);
        let (start, end) = if !self.remote && course.reads < GLANCES {
            let end = (offset - offset % GLANCE).saturating_add(GLANCE);
            (aligned(GLANCE), end.max(wanted.min(offset.saturating_add(most * BLOCK))))
        } else if !self.remote && self.is_kept_whole() {
            let size = most * BLOCK;
            (aligned(size), (offset - offset % size).saturating_add(size))
        } else {
            let start = aligned(BLOCK);
            let gap = if self.remote { 0 } else { self.source.overhead() };
            let within = course.next..=course.next.saturating_add(gap);
            // Where reads are cheap, a sparsely used piece does not justify reading more.
            let dense = self.remote || gap > 0 || course.hits >= DENSE;
            let reads_on = dense && within.contains(&start);
            let run = if reads_on { course.run * 2 } else { 1 };
            course.run = run.max(needed).clamp(1, most);
            (start, (offset - offset % BLOCK).saturating_add(course.run * BLOCK))
        };
        let end = end.min(after).min(self.len());
        course.reads = course.reads.saturating_add(1);
        course.next = end;
        course.hits = 0;
        (start, end)
    }
}

impl ReadAt for Structure {
    fn len(&self) -> u64 {
        self.source.len()
    }

    fn release(&self) {
        self.source.release();
    }

    fn version(&self) -> Option<String> {
        self.source.version()
    }

    fn described(&self) -> Result<Option<ObjectHeader>> {
        self.source.described()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let end = offset.checked_add(buffer.len() as u64).filter(|end| *end <= self.len());
        let Some(end) = end.filter(|_| buffer.len() <= self.kept / 4) else {
            self.touch(true);
            return self.source.read_at(offset, buffer);
        };
        let (mut at, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            let (start, bytes) = self.piece(at, end)?;
            let held = bytes.get((at - start) as usize..).unwrap_or_default();
            let (now, later) = rest.split_at_mut(held.len().min(rest.len()));
            now.copy_from_slice(&held[..now.len()]);
            (at, rest) = (at + now.len() as u64, later);
        }
        Ok(())
    }
}

impl fmt::Debug for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Structure({:?})", self.source)
    }
}

impl Cache {
    fn lock(&self) -> MutexGuard<'_, CachedPieces> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cache({} bytes)", self.lock().bytes)
    }
}

impl CachedPieces {
    /// Returns the piece that holds a byte.
    fn get(&mut self, file: u32, offset: u64) -> Option<(u64, Arc<Vec<u8>>)> {
        let holds = |start: u64, bytes: &[u8]| {
            offset.checked_sub(start).is_some_and(|at| at < bytes.len() as u64)
        };
        if let Some((of, start, bytes)) = &self.last
            && *of == file
            && holds(*start, bytes)
        {
            let found = (*start, bytes.clone());
            self.hit(file);
            return Some(found);
        }
        let (&(_, start), piece) =
            self.by_start.range_mut((file, 0)..=(file, offset)).next_back()?;
        if !holds(start, &piece.bytes) {
            return None;
        }
        self.clock += 1;
        piece.used = self.clock;
        let bytes = piece.bytes.clone();
        self.last = Some((file, start, bytes.clone()));
        self.hit(file);
        Some((start, bytes))
    }

    fn hit(&mut self, file: u32) {
        if let Some(course) = self.files.get_mut(file as usize) {
            course.hits = course.hits.saturating_add(1);
        }
    }

    /// Returns the end of the piece before an uncached offset and the start of the piece after it.
    fn gap(&self, file: u32, offset: u64) -> (u64, u64) {
        let before = self.by_start.range((file, 0)..=(file, offset)).next_back();
        let before = before.map_or(0, |((_, start), piece)| start + piece.bytes.len() as u64);
        let after = self.by_start.range((file, offset)..=(file, u64::MAX)).next();
        (before, after.map_or(u64::MAX, |((_, start), _)| *start))
    }

    fn keep(&mut self, file: u32, start: u64, bytes: Arc<Vec<u8>>) {
        if self.bytes + bytes.len() > self.max_bytes {
            // Evicts the older half at once: finding the single oldest piece each time would cost
            // more.
            let mut ages: Vec<u64> = self.by_start.values().map(|piece| piece.used).collect();
            order::natural(&mut ages);
            let middle = ages.get(ages.len() / 2).copied().unwrap_or_default();
            self.by_start.retain(|_, piece| piece.used > middle);
            self.bytes = self.by_start.values().map(|piece| piece.bytes.len()).sum();
        }
        self.clock += 1;
        self.bytes += bytes.len();
        self.last = Some((file, start, bytes.clone()));
        let piece = CachedPiece { used: self.clock, bytes };
        if let Some(old) = self.by_start.insert((file, start), piece) {
            self.bytes -= old.bytes.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileId, FileSet};

    /// A file of `len` bytes, each a function of its offset.
    #[derive(Debug, Clone)]
    struct RecordedReads {
        len: u64,
        reads: Arc<Mutex<Vec<(u64, usize)>>>,
    }

    impl RecordedReads {
        fn new(len: u64) -> Self {
            Self { len, reads: Arc::default() }
        }

        fn reads(&self) -> Vec<(u64, usize)> {
            std::mem::take(&mut *self.reads.lock().unwrap())
        }
    }

    impl ReadAt for RecordedReads {
        fn len(&self) -> u64 {
            self.len
        }

        fn overhead(&self) -> u64 {
            256 << 10
        }

        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
            if offset.saturating_add(buffer.len() as u64) > self.len {
                return Err(Error::io("a read past the end"));
            }
            self.reads.lock().unwrap().push((offset, buffer.len()));
            let (mut at, mut rest) = (offset, buffer);
            while !rest.is_empty() {
                let (now, later) = rest.split_at_mut((512 - at as usize % 512).min(rest.len()));
                now.fill(byte(at));
                (at, rest) = (at + now.len() as u64, later);
            }
            Ok(())
        }
    }

    /// The same for 512 bytes, then another value.
    fn byte(at: u64) -> u8 {
        ((at / 512).wrapping_mul(2_654_435_761) >> 24) as u8
    }

    fn local(file: &RecordedReads) -> (Arc<Cache>, Structure) {
        let cache = Arc::default();
        let structure = Structure::new(&cache, Arc::new(file.clone()), false);
        (cache, structure)
    }

    fn read(file: &Structure, offset: u64, len: usize) {
        let mut bytes = vec![0; len];
        file.read_at(offset, &mut bytes).unwrap();
        assert!((offset..).zip(&bytes).all(|(at, value)| *value == byte(at)), "{len} at {offset}");
    }

    #[test]
    fn reads_match_the_file() {
        for (len, remote) in [(5 << 20, false), (80 << 20, false), (80 << 20, true)] {
            let cache = Arc::default();
            let file = Structure::new(&cache, Arc::new(RecordedReads::new(len + 13)), remote);
            for offset in [0, 1, GLANCE - 1, GLANCE, BLOCK - 5, BLOCK, 3 << 20, len + 12] {
                for want in [1, 100, GLANCE, BLOCK + 1, 300_000] {
                    read(&file, offset, want.min(len + 13 - offset) as usize);
                }
            }
            // Reads larger than a quarter of the cache bypass it.
            read(&file, 7, (9 << 20).min(len as usize));
            assert!(file.read_at(len + 12, &mut [0; 2]).is_err());
            assert!(file.read_at(u64::MAX, &mut [0; 2]).is_err());
            assert!(file.piece(len + 13, len + 14).is_err());
        }
    }

    #[test]
    fn cache_is_bounded_across_all_files() {
        let cache = Arc::default();
        let new = |_| Structure::new(&cache, Arc::new(RecordedReads::new(80 << 20)), false);
        let files: Vec<Structure> = (0..2).map(new).collect();
        let mut at = 12_345_u64;
        for step in 0..4_000_u64 {
            // Reads forward for a while, then jumps.
            at = match step % 50 {
                0 => step.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (60 << 20),
                _ => at + 150_000,
            };
            read(&files[step as usize / 50 % 2], at, 1 + step as usize % 7_000);
            let pieces = cache.lock();
            let bytes = pieces.by_start.values().map(|piece| piece.bytes.len()).sum::<usize>();
            assert!(
                bytes == pieces.bytes && bytes <= KEPT + (MAX_BLOCKS * BLOCK) as usize,
                "{bytes}"
            );
        }
    }

    #[test]
    fn reads_and_keeps_little_of_many_files() {
        let file = RecordedReads::new(2 << 20);
        let mut set = FileSet::default();
        for number in 0..3_000 {
            set.push(number.to_string(), Arc::new(file.clone()));
        }
        for id in (0..3_000).map(FileId) {
            set.read(id, 0, &mut [0; 16_392]).unwrap();
            set.read(id, 8, &mut [0; 100]).unwrap();
        }
        let reads = file.reads();
        assert_eq!(reads.len(), 3_000, "one read for each");
        assert!(reads.iter().all(|&(at, len)| at == 0 && len as u64 == GLANCE));
    }

    #[test]
    fn sequential_reads_are_few_and_jumps_read_little() {
        let file = RecordedReads::new(40 << 20);
        let (_, forward) = local(&file);
        for offset in (0..(40 << 20) - 100).step_by(1000) {
            read(&forward, offset, 100);
        }
        assert!(file.reads().len() < 55);
        let (cache, jumping) = local(&file);
        for step in 0..20 {
            read(&jumping, step * (2 << 20), 100);
        }
        assert_eq!(file.reads().len(), 20);
        assert!(cache.lock().bytes <= 20 * BLOCK as usize);
        // A file that fits into the cache is soon cached whole, in any order of reads.
        let file = RecordedReads::new(20 << 20);
        let (_, backward) = local(&file);
        for offset in (0..20_900).rev().map(|step| step * 1000) {
            read(&backward, offset, 100);
        }
        assert!(file.reads().len() <= 20 + GLANCES as usize);
    }

    #[test]
    fn remote_reads_do_not_fetch_unused_blocks() {
        let file = RecordedReads::new(40 << 20);
        let remote = Structure::new(&Arc::default(), Arc::new(file.clone()), true);
        for offset in (0..40 * BLOCK).step_by(5_000) {
            read(&remote, offset, 10);
        }
        let block = BLOCK as usize;
        let blocks = |reads: Vec<(u64, usize)>| -> Vec<(u64, usize)> {
            reads.iter().map(|&(at, len)| (at / BLOCK, len.div_ceil(block))).collect()
        };
        assert_eq!(blocks(file.reads()), [(0, 1), (1, 2), (3, 4), (7, 8), (15, 16), (31, 32)]);
        for block in [600, 500, 400, 300] {
            read(&remote, block * BLOCK, 10);
        }
        assert_eq!(blocks(file.reads()), [(600, 1), (500, 1), (400, 1), (300, 1)]);
        // All blocks of a long read are fetched at once, except those already cached.
        read(&remote, 298 * BLOCK + 5, 6 * block);
        assert_eq!(blocks(file.reads()), [(298, 2), (301, 4)]);
    }
}
