//! A bounded block cache over any source.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{ReadAt, Result};

/// Reads its source in whole blocks and keeps the most recently used ones.
///
/// For structure: many small reads close together. Bulk bytes go past it: a read of more than
/// half the cache is passed straight to the source.
pub struct BlockCache {
    source: Arc<dyn ReadAt>,
    block: u64,
    capacity: usize,
    /// The most blocks that are read at once.
    ahead: u64,
    blocks: Mutex<Blocks>,
}

#[derive(Default)]
struct Blocks {
    by_index: HashMap<u64, (u64, Arc<[u8]>)>,
    clock: u64,
    /// How many blocks were read last, and the one behind them.
    run: u64,
    next: u64,
}

impl BlockCache {
    /// Blocks of `block` bytes, at most `capacity` of them; both at least 1.
    pub fn new(source: Arc<dyn ReadAt>, block: usize, capacity: usize) -> Self {
        Self {
            source,
            block: block.max(1) as u64,
            capacity: capacity.max(1),
            ahead: 1,
            blocks: Mutex::default(),
        }
    }

    /// Reads more at once where each read is slow: all blocks that a read needs, and where a
    /// source is read on, twice as many each time, up to `blocks`.
    #[must_use]
    pub fn reading_ahead(mut self, blocks: usize) -> Self {
        self.ahead = blocks.clamp(1, (self.capacity / 2).max(1)) as u64;
        self
    }

    /// A block; if it must be read, up to `needed` behind it are, too.
    fn block(&self, index: u64, needed: u64) -> Result<Arc<[u8]>> {
        let mut blocks = self.lock();
        blocks.clock += 1;
        let now = blocks.clock;
        if let Some((used, bytes)) = blocks.by_index.get_mut(&index) {
            *used = now;
            return Ok(bytes.clone());
        }
        let doubled = if blocks.next == index { blocks.run * 2 } else { 1 };
        let last = (self.source.len() - 1) / self.block;
        let mut run = doubled.max(needed + 1).min(self.ahead).min(last - index + 1);
        run = (1..run).find(|at| blocks.by_index.contains_key(&(index + at))).unwrap_or(run);
        drop(blocks);
        let start = index * self.block;
        let len = (self.block * run).min(self.source.len() - start) as usize;
        let mut bytes = vec![0; len];
        self.source.read_at(start, &mut bytes)?;
        let mut blocks = self.lock();
        (blocks.run, blocks.next) = (run, index + run);
        let mut read = bytes.chunks(self.block as usize).map(Arc::<[u8]>::from);
        let first = read.next().unwrap_or_default();
        self.keep(&mut blocks, index, now, first.clone());
        for (at, bytes) in (index + 1..).zip(read) {
            self.keep(&mut blocks, at, now, bytes);
        }
        Ok(first)
    }

    fn keep(&self, blocks: &mut Blocks, index: u64, now: u64, bytes: Arc<[u8]>) {
        if blocks.by_index.len() >= self.capacity {
            // Evict the older half at once: a scan per miss would cost more than it saves.
            let mut ages: Vec<u64> = blocks.by_index.values().map(|(used, _)| *used).collect();
            let middle = ages.len() / 2;
            let (_, median, _) = ages.select_nth_unstable(middle);
            let median = *median;
            blocks.by_index.retain(|_, (used, _)| *used > median);
        }
        blocks.by_index.insert(index, (now, bytes));
    }

    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadAt for BlockCache {
    fn len(&self) -> u64 {
        self.source.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        if buffer.len() as u64 > self.block * self.capacity as u64 / 2
            || offset.checked_add(buffer.len() as u64).is_none_or(|end| end > self.len())
        {
            return self.source.read_at(offset, buffer);
        }
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            let needed = (offset + buffer.len() as u64 - 1) / self.block - at / self.block;
            let bytes = self.block(at / self.block, needed)?;
            let from = (at % self.block) as usize;
            let take = (bytes.len() - from).min(buffer.len() - done);
            buffer[done..done + take].copy_from_slice(&bytes[from..from + take]);
            done += take;
        }
        Ok(())
    }
}

impl fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockCache({:?}, {} x {})", self.source, self.capacity, self.block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_read_equals_the_source_and_memory_stays_bounded() {
        every_read(1);
        every_read(4);
    }

    fn every_read(ahead: usize) {
        let bytes: Vec<u8> = (0..1000u32).map(|i| (i * 7) as u8).collect();
        let source = Arc::new(crate::Memory::from(bytes.clone()));
        let cache = BlockCache::new(source, 16, 8).reading_ahead(ahead);
        for offset in (0..1000).chain((0..1000).rev()) {
            for len in [1, 15, 17, 60, 200] {
                let len = len.min(1000 - offset);
                let mut buffer = vec![0; len];
                cache.read_at(offset as u64, &mut buffer).unwrap();
                assert_eq!(buffer, bytes[offset..offset + len]);
            }
            assert!(cache.lock().by_index.len() <= 8);
        }
        assert!(cache.read_at(999, &mut [0; 2]).is_err());
    }

    #[derive(Debug)]
    struct Counted(Mutex<Vec<(u64, usize)>>);

    impl ReadAt for Counted {
        fn len(&self) -> u64 {
            1000
        }

        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
            self.0.lock().unwrap().push((offset, buffer.len()));
            Ok(())
        }
    }

    #[test]
    fn reading_on_takes_more_at_once_and_reading_about_does_not() {
        let source = Arc::new(Counted(Mutex::default()));
        let cache = BlockCache::new(source.clone(), 10, 40).reading_ahead(8);
        for offset in 0..400 {
            cache.read_at(offset, &mut [0]).unwrap();
        }
        let reads = std::mem::take(&mut *source.0.lock().unwrap());
        assert_eq!(reads[..5], [(0, 10), (10, 20), (30, 40), (70, 80), (150, 80)]);
        for offset in [990, 700, 600, 500] {
            cache.read_at(offset, &mut [0]).unwrap();
        }
        let reads = std::mem::take(&mut *source.0.lock().unwrap());
        assert_eq!(reads, [(990, 10), (700, 10), (600, 10), (500, 10)]);
        // What a read needs comes at once, but for what is there.
        cache.read_at(455, &mut [0; 60]).unwrap();
        let reads = std::mem::take(&mut *source.0.lock().unwrap());
        assert_eq!(reads, [(470, 30), (510, 10)]);
    }
}
