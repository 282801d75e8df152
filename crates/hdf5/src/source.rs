//! The bytes of a container: hdf5-reader's `Storage` over our [`ReadAt`], through a cache.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hdf5_reader::{Storage, StorageBuffer};
use statelens_checkpoint::{Error, Limits, ReadAt, Result, order, room};

use crate::error::{from_reader, to_reader};

/// The container's bytes from its superblock on; addresses in the file count from there.
///
/// Structure is read in blocks, and neighbouring blocks together: a read costs as much as
/// hundreds of kilobytes where the source is a browser's `File`, and reading far ahead is waste
/// where gigabytes of data lie between two headers. So the number of blocks per read doubles
/// while reads go forward without gaps, and starts again at one after a jump.
pub(crate) struct Source {
    inner: Arc<dyn ReadAt>,
    base: u64,
    cache: Mutex<Cache>,
    spent: AtomicU64,
    reached: AtomicU64,
}

#[derive(Default)]
struct Cache {
    /// What was read at once, in file order: at most [`CAPACITY`] / [`BLOCK`] pieces.
    pieces: Vec<Piece>,
    /// Bytes in all pieces.
    bytes: usize,
    clock: u64,
    /// The piece that was asked for last: most often it is the next one, too.
    last: Option<(u64, Arc<Vec<u8>>)>,
    /// Blocks per read, and the block after the last read.
    run: u64,
    next: u64,
}

struct Piece {
    /// Its first block.
    first: u64,
    used: u64,
    bytes: Arc<Vec<u8>>,
}

const BLOCK: u64 = 64 << 10;
/// A cache smaller than the structure would read it again and again.
const CAPACITY: usize = 32 << 20;
/// What small files may take beyond their size.
const SLACK: u64 = 16 << 20;
/// 1 MiB.
const LONGEST_RUN: u64 = 16;

impl Source {
    pub(crate) fn new(inner: Arc<dyn ReadAt>, base: u64) -> Self {
        Self {
            inner,
            base,
            cache: Mutex::default(),
            spent: AtomicU64::new(0),
            reached: AtomicU64::new(0),
        }
    }

    /// First byte of the container in its file.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// `len` bytes at an address of the container.
    pub(crate) fn bytes(&self, address: u64, len: u64) -> Result<StorageBuffer> {
        let len = usize::try_from(len).map_err(|_| self.past_end(address, len))?;
        self.read_range(address, len).map_err(from_reader)
    }

    /// [`Source::bytes`], to be kept: they don't hold on to what was read around them.
    pub(crate) fn bytes_apart(&self, address: u64, len: u64) -> Result<StorageBuffer> {
        let bytes = self.bytes(address, len)?;
        let all_kept = self.inner.len() <= CAPACITY as u64;
        Ok(if all_kept { bytes } else { StorageBuffer::from_vec(bytes.to_vec()) })
    }

    /// Counts bytes of structure that were made something of.
    ///
    /// In a sound file nearly every byte belongs to one object. A hostile one can let ten
    /// thousand objects name the same header block or string, so that reading all of them would
    /// take ten thousand times the file's size in time and memory: that is a limit error.
    pub(crate) fn spend(&self, bytes: u64) -> Result<()> {
        let spent = self.spent.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let most = self.inner.len().saturating_mul(4).saturating_add(SLACK);
        Limits::check(
            "bytes of structure, those that are named again and again included",
            spent,
            most,
        )
    }

    /// Remembers that something of the container reaches up to an address.
    pub(crate) fn reach(&self, end: u64) {
        self.reached.fetch_max(end, Ordering::Relaxed);
    }

    /// The furthest address that something is known to reach up to.
    pub(crate) fn reached(&self) -> u64 {
        self.reached.load(Ordering::Relaxed)
    }

    fn past_end(&self, address: u64, len: u64) -> Error {
        Error::damaged(format!(
            "{len} bytes of structure are said to be there, and the file ends at byte {}",
            self.inner.len()
        ))
        .at(self.base.saturating_add(address))
        .advice("The file may be cut short: compare its size with the original.")
    }

    /// The piece that a block is in, and the first block of it.
    fn piece(&self, index: u64) -> Result<(u64, Arc<Vec<u8>>)> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(piece) = cache.piece(index) {
            return Ok(piece);
        }
        // A file that fits the cache is read in large aligned pieces, in whatever order.
        let small = self.inner.len() <= CAPACITY as u64;
        let (first, run) = match () {
            () if small => (index - index % LONGEST_RUN, LONGEST_RUN),
            () if index == cache.next => (index, (cache.run * 2).clamp(1, LONGEST_RUN)),
            () => (index, 1),
        };
        // What is there already is not read again.
        let after = cache.pieces.get(cache.position(first)).map_or(u64::MAX, |piece| piece.first);
        let run = run.min(after - first);
        let start = first * BLOCK;
        let len = (run * BLOCK).min(self.inner.len().saturating_sub(start)) as usize;
        let mut bytes = vec![0; len];
        self.inner.read_at(start, &mut bytes)?;
        cache.run = run;
        cache.next = first + run;
        cache.add(first, bytes);
        cache.piece(index).ok_or_else(|| self.past_end(start, BLOCK))
    }
}

impl Cache {
    fn piece(&mut self, index: u64) -> Option<(u64, Arc<Vec<u8>>)> {
        let holds = |first: u64, bytes: &[u8]| {
            index.checked_sub(first).is_some_and(|at| at * BLOCK < bytes.len() as u64)
        };
        if let Some((first, bytes)) = &self.last
            && holds(*first, bytes)
        {
            return Some((*first, bytes.clone()));
        }
        let after = self.position(index + 1);
        let piece = self.pieces.get_mut(after.checked_sub(1)?)?;
        if !holds(piece.first, &piece.bytes) {
            return None;
        }
        self.clock += 1;
        piece.used = self.clock;
        let found = (piece.first, piece.bytes.clone());
        self.last = Some(found.clone());
        Some(found)
    }

    /// Where the first piece is that begins at a block or behind it.
    fn position(&self, block: u64) -> usize {
        self.pieces.partition_point(|piece| piece.first < block)
    }

    fn add(&mut self, first: u64, bytes: Vec<u8>) {
        if self.bytes + bytes.len() > CAPACITY {
            // Drop the older half at once: a scan per miss would cost more than it saves.
            let mut ages: Vec<u64> = self.pieces.iter().map(|piece| piece.used).collect();
            order::natural(&mut ages);
            let median = ages.get(ages.len() / 2).copied().unwrap_or_default();
            self.pieces.retain(|piece| piece.used > median);
            self.bytes = self.pieces.iter().map(|piece| piece.bytes.len()).sum();
        }
        self.bytes += bytes.len();
        self.clock += 1;
        let piece = Piece { first, used: self.clock, bytes: Arc::new(bytes) };
        self.pieces.insert(self.position(first), piece);
    }
}

impl Storage for Source {
    fn len(&self) -> u64 {
        self.inner.len().saturating_sub(self.base)
    }

    fn read_range(&self, address: u64, len: usize) -> hdf5_reader::error::Result<StorageBuffer> {
        let end = address.checked_add(len as u64).filter(|end| *end <= Storage::len(self));
        if end.is_none() {
            return Err(to_reader(self.past_end(address, len as u64)));
        }
        if len == 0 {
            return Ok(StorageBuffer::from_vec(Vec::new()));
        }
        let start = self.base + address;
        if len > CAPACITY / 4 {
            let mut bytes = room::zeros(len as u64).map_err(to_reader)?;
            self.inner.read_at(start, &mut bytes).map_err(to_reader)?;
            return Ok(StorageBuffer::from_vec(bytes));
        }
        let (first, piece) = self.piece(start / BLOCK).map_err(to_reader)?;
        let from = (start - first * BLOCK) as usize;
        if from + len <= piece.len() {
            return StorageBuffer::from_shared_owner(piece, from, len);
        }
        let mut bytes = Vec::with_capacity(len);
        bytes.extend_from_slice(piece.get(from..).unwrap_or_default());
        while bytes.len() < len {
            let at = start + bytes.len() as u64;
            let (first, piece) = self.piece(at / BLOCK).map_err(to_reader)?;
            let from = (at - first * BLOCK) as usize;
            let rest = piece.get(from..).unwrap_or_default();
            if rest.is_empty() {
                return Err(to_reader(self.past_end(address, len as u64)));
            }
            bytes.extend_from_slice(&rest[..rest.len().min(len - bytes.len())]);
        }
        Ok(StorageBuffer::from_vec(bytes))
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({:?} from {})", self.inner, self.base)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use statelens_checkpoint::Memory;

    use super::*;

    #[derive(Debug)]
    struct Counting(Memory, AtomicU64);

    impl ReadAt for Counting {
        fn len(&self) -> u64 {
            self.0.len()
        }

        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.read_at(offset, buffer)
        }
    }

    fn source(len: usize, base: u64) -> (Arc<Counting>, Source, Vec<u8>) {
        let bytes: Vec<u8> =
            (0..len as u32).map(|i| (i.wrapping_mul(2654435761) >> 24) as u8).collect();
        let counting = Arc::new(Counting(Memory::from(bytes.clone()), AtomicU64::new(0)));
        (counting.clone(), Source::new(counting, base), bytes)
    }

    #[test]
    fn every_range_equals_the_source() {
        let (_, source, bytes) = source(3 << 20, 512);
        for address in [0, 1, BLOCK - 513, BLOCK - 512, (2 << 20) + 17, (3 << 20) - 600] {
            for len in [0, 1, 80, 100_000, 1 << 20] {
                let start = 512 + address as usize;
                match bytes.get(start..start + len) {
                    Some(expected) => {
                        assert_eq!(&*source.bytes(address, len as u64).unwrap(), expected)
                    }
                    None => assert!(source.bytes(address, len as u64).is_err()),
                }
            }
        }
        assert!(source.bytes(u64::MAX, 2).is_err());
    }

    #[test]
    fn a_file_larger_than_the_cache_is_read_right_in_any_order() {
        let (_, source, bytes) = source(80 << 20, 0);
        let mut at = 12345u64;
        for step in 0..20_000u64 {
            // Forward for a while, then a jump.
            at = match step % 50 {
                0 => step.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (80 << 20),
                _ => at + 30_000,
            };
            let len = 1 + step % 70_000;
            let expected = bytes.get(at as usize..(at + len) as usize);
            assert_eq!(source.bytes(at, len).ok().as_deref(), expected, "{at} {len}");
            assert!(source.cache.lock().unwrap().bytes <= CAPACITY + (1 << 20));
        }
    }

    #[test]
    fn forward_reading_takes_few_reads_and_jumps_read_little() {
        let (counting, forward, bytes) = source(40 << 20, 0);
        for address in (0..bytes.len() as u64 - 100).step_by(1000) {
            forward.bytes(address, 100).unwrap();
        }
        assert!(counting.1.load(Ordering::Relaxed) < 50);
        let (counting, backward, bytes) = source(20 << 20, 0);
        for address in (0..bytes.len() - 100).step_by(1000).rev() {
            backward.bytes(address as u64, 100).unwrap();
        }
        assert_eq!(counting.1.load(Ordering::Relaxed), 20);
        let (counting, jumping, _) = source(40 << 20, 0);
        for step in 0..20 {
            jumping.bytes(step * (2 << 20), 100).unwrap();
        }
        assert_eq!(counting.1.load(Ordering::Relaxed), 20);
        assert!(jumping.cache.lock().unwrap().bytes <= 20 * BLOCK as usize);
    }
}
