//! Scratch space for bytes that must be reordered.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Error, Result};

/// A provider of space outside memory: for the command, unnamed files that disappear with the
/// process.
///
/// A view of a compressed stream, or one stored in another order than the one read, is copied to
/// scratch space once and read from there in its own order. If a [`FileSet`] has no scratch space,
/// such a view is read several times over instead.
///
/// [`FileSet`]: crate::FileSet
pub trait Scratch: fmt::Debug + Send + Sync {
    /// Returns an area of `len` bytes, freed when dropped. Fails if that exceeds the allowance; the
    /// error says how to raise it.
    fn area(&self, len: u64) -> Result<Arc<dyn Area>>;
}

/// An area of a [`Scratch`].
pub trait Area: fmt::Debug + Send + Sync {
    /// Writes `bytes` at `offset`.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Fills `buffer` with the bytes at `offset`.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;
}

/// Scratch space in memory, up to a fixed number of bytes.
#[derive(Debug)]
pub struct MemoryScratch {
    free: Arc<Mutex<u64>>,
}

impl MemoryScratch {
    /// Creates a scratch with `most` bytes.
    pub fn new(most: u64) -> Self {
        Self { free: Arc::new(Mutex::new(most)) }
    }
}

impl Scratch for MemoryScratch {
    fn area(&self, len: u64) -> Result<Arc<dyn Area>> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let size = usize::try_from(len).ok().filter(|_| len <= *free);
        let mut bytes = Vec::new();
        let taken = size.filter(|size| bytes.try_reserve_exact(*size).is_ok());
        let Some(size) = taken else {
            return Err(Error::limit(format!("{len} bytes of memory to put a tensor in order")));
        };
        bytes.resize(size, 0);
        *free -= len;
        Ok(Arc::new(InMemory { bytes: Mutex::new(bytes), free: self.free.clone() }))
    }
}

struct InMemory {
    bytes: Mutex<Vec<u8>>,
    free: Arc<Mutex<u64>>,
}

impl InMemory {
    fn with<T>(&self, offset: u64, len: usize, act: impl FnOnce(&mut [u8]) -> T) -> Result<T> {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let start = usize::try_from(offset).ok();
        let range = start.and_then(|start| bytes.get_mut(start..start.checked_add(len)?));
        range.map(act).ok_or_else(|| Error::io("a place outside the scratch space").at(offset))
    }
}

impl Area for InMemory {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.with(offset, bytes.len(), |place| place.copy_from_slice(bytes))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.with(offset, buffer.len(), |place| buffer.copy_from_slice(place))
    }
}

impl Drop for InMemory {
    fn drop(&mut self) {
        let len = self.bytes.lock().unwrap_or_else(PoisonError::into_inner).len() as u64;
        *self.free.lock().unwrap_or_else(PoisonError::into_inner) += len;
    }
}

impl fmt::Debug for InMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InMemory")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_areas_release_their_space() {
        let scratch = MemoryScratch::new(10);
        let area = scratch.area(8).unwrap();
        assert_eq!(scratch.area(3).unwrap_err().kind(), crate::ErrorKind::Limit);
        area.write_at(5, &[1, 2, 3]).unwrap();
        let mut found = [9; 4];
        area.read_at(4, &mut found).unwrap();
        assert_eq!(found, [0, 1, 2, 3]);
        assert!(area.write_at(6, &[1, 2, 3]).is_err());
        assert!(area.read_at(u64::MAX, &mut found).is_err());
        drop(area);
        assert!(scratch.area(10).is_ok());
    }
}
