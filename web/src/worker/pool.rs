//! Blocks of many files, which are bounded for all of them together.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use statelens_checkpoint::{ReadAt, Result};

/// What is read of a file at first: enough to tell which format it is of. Of most files of a large
/// folder nothing else is read.
const SMALL: u64 = 20 << 10;
/// How many such blocks are read of a file before it gets large ones.
const FEW: u32 = 3;
/// What is read at once of a file that is read on: a call costs the same whatever it reads.
const LARGE: u64 = 1 << 20;
/// What is kept of all files together.
const MOST: usize = 32 << 20;

/// Blocks of files, the most recently used ones.
#[derive(Default)]
pub struct Pool {
    blocks: Mutex<Blocks>,
    files: AtomicU32,
}

#[derive(Default)]
struct Blocks {
    by_place: HashMap<Place, (u64, Arc<[u8]>)>,
    bytes: usize,
    clock: u64,
}

/// The file, the size of its blocks, and which of those.
type Place = (u32, u64, u64);

impl Pool {
    /// A file, read through these blocks; `note` is told of each read, also of one that needs no
    /// other block.
    pub fn of<S: ReadAt>(self: &Arc<Self>, source: S, note: fn(&S)) -> Pooled<S> {
        let file = self.files.fetch_add(1, Relaxed);
        Pooled { pool: self.clone(), file, source, note, read: AtomicU32::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Blocks {
    fn get(&mut self, place: Place) -> Option<Arc<[u8]>> {
        self.clock += 1;
        let (used, bytes) = self.by_place.get_mut(&place)?;
        *used = self.clock;
        Some(bytes.clone())
    }

    fn keep(&mut self, place: Place, bytes: Arc<[u8]>) {
        if self.bytes + bytes.len() > MOST {
            // The older half goes at once: to look for the oldest each time would cost more.
            let mut ages: Vec<u64> = self.by_place.values().map(|(used, _)| *used).collect();
            ages.sort_unstable();
            let middle = ages.get(ages.len() / 2).copied().unwrap_or_default();
            self.by_place.retain(|_, (used, _)| *used > middle);
            self.bytes = self.by_place.values().map(|(_, bytes)| bytes.len()).sum();
        }
        self.bytes += bytes.len();
        self.by_place.insert(place, (self.clock, bytes));
    }
}

/// A file of a [`Pool`].
pub struct Pooled<S> {
    pool: Arc<Pool>,
    file: u32,
    source: S,
    note: fn(&S),
    /// How many blocks were read of it.
    read: AtomicU32,
}

impl<S: ReadAt> Pooled<S> {
    /// The bytes from an offset to the end of the block that it is in, and where in it it is.
    fn block(&self, offset: u64) -> Result<(Arc<[u8]>, usize)> {
        let place = |size: u64| (self.file, size, offset / size);
        let within = |size: u64| (offset % size) as usize;
        let mut blocks = self.pool.lock();
        for size in [LARGE, SMALL] {
            if let Some(bytes) = blocks.get(place(size)) {
                return Ok((bytes, within(size)));
            }
        }
        drop(blocks);
        let size = if self.read.fetch_add(1, Relaxed) < FEW { SMALL } else { LARGE };
        let start = offset / size * size;
        let mut bytes = vec![0; size.min(self.source.len() - start) as usize];
        self.source.read_at(start, &mut bytes)?;
        let bytes = Arc::<[u8]>::from(bytes);
        self.pool.lock().keep(place(size), bytes.clone());
        Ok((bytes, within(size)))
    }
}

impl<S: ReadAt> ReadAt for Pooled<S> {
    fn len(&self) -> u64 {
        self.source.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        (self.note)(&self.source);
        let end = offset.checked_add(buffer.len() as u64);
        if buffer.len() as u64 > LARGE || end.is_none_or(|end| end > self.len()) {
            return self.source.read_at(offset, buffer);
        }
        let mut done = 0;
        while done < buffer.len() {
            let (bytes, from) = self.block(offset + done as u64)?;
            let take = (bytes.len() - from).min(buffer.len() - done);
            buffer[done..done + take].copy_from_slice(&bytes[from..from + take]);
            done += take;
        }
        Ok(())
    }
}

impl<S: fmt::Debug> fmt::Debug for Pooled<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pooled({:?})", self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of so many bytes, each told by where it is.
    #[derive(Debug)]
    struct Counted {
        len: u64,
        read: Arc<Mutex<Vec<(u64, usize)>>>,
    }

    impl ReadAt for Counted {
        fn len(&self) -> u64 {
            self.len
        }

        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
            self.read.lock().unwrap().push((offset, buffer.len()));
            for (at, byte) in (offset..).zip(buffer) {
                *byte = (at * 7 % 251) as u8;
            }
            Ok(())
        }
    }

    #[test]
    fn every_read_is_what_the_file_has() {
        let pool = Arc::<Pool>::default();
        let file = pool.of(Counted { len: (5 << 20) + 13, read: Arc::default() }, |_| ());
        for offset in [0, 1, SMALL - 1, SMALL, LARGE - 5, LARGE, 3 << 20, (5 << 20) + 12] {
            for len in [1, 100, SMALL, LARGE, LARGE + 1] {
                let mut bytes = vec![0; len.min(file.len() - offset) as usize];
                file.read_at(offset, &mut bytes).unwrap();
                let mut at = (offset..).zip(&bytes);
                assert!(at.all(|(at, &byte)| byte == (at * 7 % 251) as u8), "{len} at {offset}");
            }
        }
    }

    #[test]
    fn many_files_keep_little_and_are_read_little() {
        let pool = Arc::<Pool>::default();
        let read = Arc::<Mutex<Vec<(u64, usize)>>>::default();
        let file = |_| pool.of(Counted { len: 2 << 20, read: read.clone() }, |_| ());
        let files: Vec<Pooled<Counted>> = (0..3_000).map(file).collect();
        for file in &files {
            file.read_at(0, &mut [0; 16_392]).unwrap();
            file.read_at(8, &mut [0; 100]).unwrap();
        }
        let read = read.lock().unwrap();
        assert_eq!(read.len(), 3_000, "one call for each");
        assert!(read.iter().all(|&(at, len)| at == 0 && len as u64 == SMALL));
        let kept = pool.lock().by_place.values().map(|(_, bytes)| bytes.len()).sum::<usize>();
        assert!(kept == pool.lock().bytes && kept <= MOST, "{kept} bytes are kept");
    }

    #[test]
    fn a_file_that_is_read_on_takes_few_calls() {
        let read = Arc::<Mutex<Vec<(u64, usize)>>>::default();
        let counted = Counted { len: 16 << 20, read: read.clone() };
        let file = Arc::<Pool>::default().of(counted, |_| ());
        for at in (0..16 << 20).step_by(4_096) {
            file.read_at(at, &mut [0; 16]).unwrap();
        }
        assert!(read.lock().unwrap().len() <= 20, "{:?}", read.lock().unwrap());
    }
}
