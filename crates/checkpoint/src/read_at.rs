//! Sources of bytes with random access.

use std::fmt;
use std::sync::Arc;

use crate::{Error, Result};

/// Random access to the bytes of one file, blob, or remote object.
pub trait ReadAt: fmt::Debug + Send + Sync {
    /// Returns the length in bytes.
    fn len(&self) -> u64;

    /// Fills `buffer` from `offset`. Callers stay within `len()`, which [`FileSet`](crate::FileSet)
    /// checks.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;

    /// Returns whether the source is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how many bytes could be read in the time of a read's fixed cost. A gap of at most
    /// this size between reads of structure still counts as reading forward.
    fn overhead(&self) -> u64 {
        0
    }

    /// Returns a store's description of the object: the text that it keeps with it, and its current
    /// length. `None` for sources that are not objects of a store.
    ///
    /// # Errors
    /// The store can't be reached, or does not have the object.
    fn described(&self) -> Result<Option<ObjectHeader>> {
        Ok(None)
    }

    /// Releases resources such as an open file handle: the source does not belong to the
    /// checkpoint.
    fn release(&self) {}

    /// Returns a text that changes with the content, such as the time of the last change or a tag;
    /// `None` if nothing is known. For a file on disk, returns its current state at each call.
    fn version(&self) -> Option<String> {
        None
    }
}

/// The header of an object in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectHeader {
    /// The user metadata with the name `metadata`.
    pub metadata: Option<String>,
    /// Length of the object in bytes.
    pub len: u64,
}

/// A source in memory.
#[derive(Clone)]
pub struct Memory(pub Arc<Vec<u8>>);

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({})", self.0.len())
    }
}

impl From<Vec<u8>> for Memory {
    fn from(bytes: Vec<u8>) -> Self {
        // Moves the bytes: a copy of unpacked data may take hundreds of megabytes.
        Self(Arc::new(bytes))
    }
}

impl ReadAt for Memory {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let start = usize::try_from(offset).ok();
        let range = start.and_then(|start| self.0.get(start..start.checked_add(buffer.len())?));
        match range {
            Some(range) => {
                buffer.copy_from_slice(range);
                Ok(())
            }
            None => Err(Error::io("a read past the end").at(offset)),
        }
    }
}
