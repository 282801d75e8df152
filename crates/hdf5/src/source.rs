//! The bytes of a container: hdf5-reader's `Storage` over our [`ReadAt`], through a cache.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hdf5_reader::{Storage, StorageBuffer};
use statelens_checkpoint::{Error, Limits, ReadAt, Result};

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
}

#[derive(Default)]
struct Cache {
    blocks: HashMap<u64, (u64, Arc<[u8]>)>,
    clock: u64,
    /// Blocks per read, and the block after the last read.
    run: u64,
    next: u64,
}

const BLOCK: u64 = 64 << 10;
/// 32 MiB: a cache smaller than the structure would read it again and again.
const CAPACITY: usize = 512;
/// What small files may take beyond their size.
const SLACK: u64 = 16 << 20;
/// 1 MiB.
const LONGEST_RUN: u64 = 16;

impl Source {
    pub(crate) fn new(inner: Arc<dyn ReadAt>, base: u64) -> Self {
        Self { inner, base, cache: Mutex::default(), spent: AtomicU64::new(0) }
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

    fn past_end(&self, address: u64, len: u64) -> Error {
        Error::damaged(format!(
            "{len} bytes of structure are said to be there, and the file ends at byte {}",
            self.inner.len()
        ))
        .at(self.base.saturating_add(address))
        .advice("The file may be cut short: compare its size with the original.")
    }

    fn block(&self, index: u64) -> Result<Arc<[u8]>> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.clock += 1;
        let now = cache.clock;
        if let Some((used, bytes)) = cache.blocks.get_mut(&index) {
            *used = now;
            return Ok(bytes.clone());
        }
        // A file that fits the cache is read in large aligned pieces, in whatever order.
        let small = self.inner.len() <= BLOCK * CAPACITY as u64;
        let (first, run) = match () {
            () if small => (index - index % LONGEST_RUN, LONGEST_RUN),
            () if index == cache.next => (index, (cache.run * 2).clamp(1, LONGEST_RUN)),
            () => (index, 1),
        };
        let start = first * BLOCK;
        let len = (run * BLOCK).min(self.inner.len().saturating_sub(start));
        let mut bytes = vec![0; len as usize];
        self.inner.read_at(start, &mut bytes)?;
        cache.run = run;
        cache.next = first + run;
        cache.make_room(len.div_ceil(BLOCK) as usize);
        for (at, block) in (first..).zip(bytes.chunks(BLOCK as usize)) {
            cache.blocks.insert(at, (now, block.into()));
        }
        match cache.blocks.get(&index) {
            Some((_, block)) => Ok(block.clone()),
            None => Err(self.past_end(start, BLOCK)),
        }
    }
}

impl Cache {
    fn make_room(&mut self, blocks: usize) {
        if self.blocks.len() + blocks <= CAPACITY {
            return;
        }
        // Evict the older half at once: a scan per miss would cost more than it saves.
        let mut ages: Vec<u64> = self.blocks.values().map(|(used, _)| *used).collect();
        let middle = ages.len() / 2;
        let (_, median, _) = ages.select_nth_unstable(middle);
        let median = *median;
        self.blocks.retain(|_, (used, _)| *used > median);
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
        if len as u64 > BLOCK * CAPACITY as u64 / 4 {
            let mut bytes = vec![0; len];
            self.inner.read_at(start, &mut bytes).map_err(to_reader)?;
            return Ok(StorageBuffer::from_vec(bytes));
        }
        let (first, within) = (start / BLOCK, (start % BLOCK) as usize);
        if within + len <= BLOCK as usize {
            let block = self.block(first).map_err(to_reader)?;
            return StorageBuffer::from_shared(block, within, len);
        }
        let mut bytes = Vec::with_capacity(len);
        let mut from = within;
        let mut index = first;
        while bytes.len() < len {
            let block = self.block(index).map_err(to_reader)?;
            let take = (block.len() - from).min(len - bytes.len());
            bytes.extend_from_slice(&block[from..from + take]);
            from = 0;
            index += 1;
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
        assert!(jumping.cache.lock().unwrap().blocks.len() <= 20);
    }
}
