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
    blocks: Mutex<Blocks>,
}

#[derive(Default)]
struct Blocks {
    by_index: HashMap<u64, (u64, Arc<[u8]>)>,
    clock: u64,
}

impl BlockCache {
    /// Blocks of `block` bytes, at most `capacity` of them; both at least 1.
    pub fn new(source: Arc<dyn ReadAt>, block: usize, capacity: usize) -> Self {
        Self {
            source,
            block: block.max(1) as u64,
            capacity: capacity.max(1),
            blocks: Mutex::default(),
        }
    }

    fn block(&self, index: u64) -> Result<Arc<[u8]>> {
        let mut blocks = self.lock();
        blocks.clock += 1;
        let now = blocks.clock;
        if let Some((used, bytes)) = blocks.by_index.get_mut(&index) {
            *used = now;
            return Ok(bytes.clone());
        }
        drop(blocks);
        let start = index * self.block;
        let len = self.block.min(self.source.len() - start) as usize;
        let mut bytes = vec![0; len];
        self.source.read_at(start, &mut bytes)?;
        let bytes: Arc<[u8]> = bytes.into();
        let mut blocks = self.lock();
        if blocks.by_index.len() >= self.capacity {
            // Evict the older half at once: a scan per miss would cost more than it saves.
            let mut ages: Vec<u64> = blocks.by_index.values().map(|(used, _)| *used).collect();
            let middle = ages.len() / 2;
            let (_, median, _) = ages.select_nth_unstable(middle);
            let median = *median;
            blocks.by_index.retain(|_, (used, _)| *used > median);
        }
        blocks.by_index.insert(index, (now, bytes.clone()));
        Ok(bytes)
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
            let bytes = self.block(at / self.block)?;
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
        let bytes: Vec<u8> = (0..1000u32).map(|i| (i * 7) as u8).collect();
        let cache = BlockCache::new(Arc::new(crate::Memory::from(bytes.clone())), 16, 8);
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
}
