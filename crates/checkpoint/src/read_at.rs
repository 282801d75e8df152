//! Where bytes come from: random access, whatever is behind it.

use std::fmt;
use std::sync::Arc;

use crate::{Error, Result};

/// Random access to the bytes of one file, blob, or remote object.
pub trait ReadAt: fmt::Debug + Send + Sync {
    /// Length in bytes.
    fn len(&self) -> u64;

    /// Fills `buffer` from `offset`. Callers keep within `len()`; [`FileSet`](crate::FileSet) checks it.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;

    /// Whether there is nothing in it.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bytes could be read in the time that a read takes whatever its length: structure
    /// behind so small a gap counts as read on.
    fn overhead(&self) -> u64 {
        0
    }

    /// It was looked at and does not belong to the checkpoint: what holds it open may be let go.
    fn release(&self) {}
}

/// A source that is in memory.
#[derive(Clone)]
pub struct Memory(pub Arc<Vec<u8>>);

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({})", self.0.len())
    }
}

impl From<Vec<u8>> for Memory {
    fn from(bytes: Vec<u8>) -> Self {
        // As it is: a copy of what was unpacked may be hundreds of megabytes.
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
