//! Room for bytes that are put in order before they can go on.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Error, Result};

/// Gives room outside memory: in the command, files without a name that go with the process.
///
/// A view of a compressed stream, or one whose elements lie crosswise to the order in which they
/// are wanted, is read once into such room and from there in its own order. Where a [`FileSet`]
/// has none, such a view is read several times over instead.
///
/// [`FileSet`]: crate::FileSet
pub trait Scratch: fmt::Debug + Send + Sync {
    /// Room for `len` bytes, given back when it is dropped. Fails if that is more than is
    /// allowed, and says how to allow it.
    fn area(&self, len: u64) -> Result<Arc<dyn Area>>;
}

/// Some room of a [`Scratch`].
pub trait Area: fmt::Debug + Send + Sync {
    /// Keeps `bytes` at `offset`.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Fills `buffer` with what was kept at `offset`.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;
}

/// Scratch in memory, for at most so many bytes at once.
#[derive(Debug)]
pub struct MemoryScratch {
    free: Arc<Mutex<u64>>,
}

impl MemoryScratch {
    /// Room for `most` bytes.
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
    fn room_is_given_back_and_nobody_leaves_it() {
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
