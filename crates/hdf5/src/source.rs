//! The bytes of a container: hdf5-reader's `Storage` on top of the cache of its set of files.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hdf5_reader::io::Cursor;
use hdf5_reader::{Storage, StorageBuffer};
use statelens_checkpoint::{Error, Limits, ReadAt, Result, Structure, try_alloc};

use crate::error::{from_reader, to_reader};

/// Widths of addresses and lengths in the file, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Widths {
    pub(crate) offset: u8,
    pub(crate) length: u8,
}

/// The container's bytes from its superblock on; addresses in the file count from there.
pub(crate) struct Source {
    inner: Arc<Structure>,
    base: u64,
    pub(crate) widths: Widths,
    spent: AtomicU64,
    /// How many times its size may be spent.
    repeats: u64,
    reached: AtomicU64,
}

/// Allowance for small files beyond their size, in bytes.
const SLACK: u64 = 16 << 20;

impl Source {
    pub(crate) fn new(inner: Arc<Structure>, base: u64, widths: Widths) -> Self {
        let (spent, reached) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { inner, base, widths, spent, repeats: 4, reached }
    }

    /// Raises the limit of [`Source::spend`].
    pub(crate) fn allow_repeats(&mut self) {
        self.repeats = 256;
    }

    /// Returns the first byte of the container in its file.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Returns an error with the offset in the file of an address of the container.
    pub(crate) fn at(&self, address: u64, error: Error) -> Error {
        error.at(self.base.saturating_add(address))
    }

    /// Returns whether an address is undefined: all its bits are set.
    pub(crate) fn is_undefined(&self, address: u64) -> bool {
        Cursor::is_undefined_offset(address, self.widths.offset)
    }

    /// Parses the body of a header message with a function of hdf5-reader.
    pub(crate) fn parse<T>(
        &self,
        body: &[u8],
        parse: impl FnOnce(&mut Cursor<'_>, u8, u8, usize) -> hdf5_reader::error::Result<T>,
    ) -> Result<T> {
        let Widths { offset, length } = self.widths;
        parse(&mut Cursor::new(body), offset, length, body.len()).map_err(from_reader)
    }

    /// Returns `len` bytes at an address of the container.
    pub(crate) fn bytes(&self, address: u64, len: u64) -> Result<StorageBuffer> {
        let len = usize::try_from(len).map_err(|_| self.past_end(address, len))?;
        self.read_range(address, len).map_err(from_reader)
    }

    /// Like [`Source::bytes`], for bytes that are kept: they don't hold a reference to the larger
    /// cached piece.
    pub(crate) fn owned_bytes(&self, address: u64, len: u64) -> Result<StorageBuffer> {
        let bytes = self.bytes(address, len)?;
        Ok(match self.inner.is_kept_whole() {
            true => bytes,
            false => StorageBuffer::from_vec(try_alloc::copied(&bytes)?),
        })
    }

    /// Fails if a range is not in the file: a range beyond its end is damage, whatever its length.
    pub(crate) fn check(&self, address: u64, len: u64) -> Result<()> {
        match address.checked_add(len).is_some_and(|end| end <= Storage::len(self)) {
            true => Ok(()),
            false => Err(self.past_end(address, len)),
        }
    }

    /// Like [`Source::check`], for a structure that is read only in part; records its end as
    /// reached.
    pub(crate) fn room(&self, address: u64, len: u64) -> Result<()> {
        self.check(address, len)?;
        self.reach(address.saturating_add(len));
        Ok(())
    }

    /// Counts bytes of structure that are parsed.
    ///
    /// In a valid file nearly every byte belongs to one object. In a hostile one, ten thousand
    /// objects can refer to the same header block or string, so that reading all of them would take
    /// ten thousand times the file's size in time and memory: that is a limit error.
    pub(crate) fn spend(&self, bytes: u64) -> Result<()> {
        let spent = self.spent.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let most = self.inner.len().saturating_mul(self.repeats).saturating_add(SLACK);
        Limits::check("bytes of structure, including repeated references", spent, most)
    }

    /// Records that a structure of the container extends up to an address.
    pub(crate) fn reach(&self, end: u64) {
        self.reached.fetch_max(end, Ordering::Relaxed);
    }

    /// Returns the largest address up to which a structure is known to extend.
    pub(crate) fn reached(&self) -> u64 {
        self.reached.load(Ordering::Relaxed)
    }

    fn past_end(&self, address: u64, len: u64) -> Error {
        let error = Error::damaged(format!(
            "{len} bytes of structure should be there, but the file ends at byte {}",
            self.inner.len()
        ));
        self.at(address, error)
            .advice("The file may be cut short: compare its size with the original.")
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
        let (first, piece) = self.inner.piece(start, start + len as u64).map_err(to_reader)?;
        let from = (start - first) as usize;
        if from + len <= piece.len() {
            return StorageBuffer::from_shared_owner(piece, from, len);
        }
        let mut bytes = try_alloc::zeros(len as u64).map_err(to_reader)?;
        self.inner.read_at(start, &mut bytes).map_err(to_reader)?;
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
    use statelens_checkpoint::{FileId, FileSet, Memory};

    use super::*;

    #[test]
    fn cached_ranges_equal_the_source() {
        let bytes: Vec<u8> =
            (0..3 << 20).map(|i: u32| (i.wrapping_mul(2654435761) >> 24) as u8).collect();
        let files = FileSet::single("x", Memory::from(bytes.clone()));
        let source = Source::new(files.structure(FileId(0)).unwrap(), 512, Widths::default());
        for address in [0, 1, (64 << 10) - 513, (64 << 10) - 512, (2 << 20) + 17, (3 << 20) - 600] {
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
}
