//! Sorted tables in LevelDB's format: sorted keys and values in blocks.
//!
//! `[data block]* [metaindex block] [index block] [footer]`; see `table_format.txt` in
//! <https://github.com/google/leveldb>. TensorFlow has its own copy with a different magic number.
//! A block consists of its contents, a byte for the compression (0: none, 1: snappy), and the
//! masked CRC-32C of both.

use std::borrow::Cow;

use statelens_checkpoint::{Error, FileId, FileSet, Finding, Grade, Layout, Limits, Result, Span};

use super::proto::varint;
use crate::checks::{Algorithm, Check};
use crate::crc;

/// The magic number, the last bytes of every table.
pub(super) const MAGIC: [u8; 8] = 0xdb47_7524_8b80_fb57_u64.to_le_bytes();

/// The size of the footer: handles of the metaindex and the index block, padded, and the magic
/// number.
pub(super) const FOOTER: u64 = 48;

/// The size of the trailer of a block: the compression and the checksum.
const TRAILER: u64 = 5;

/// Uncompressed blocks above this size are not read into memory, since values in tables of the V1
/// Saver are weights. TensorFlow ends a block at 256 KiB, so such a block holds a single large
/// value.
const LARGE: u64 = 1 << 20;

pub(super) struct SortedTable<'a> {
    files: &'a FileSet,
    file: FileId,
    limits: &'a Limits,
    blocks: Vec<Handle>,
    /// The metaindex block and the index block.
    frame: [Handle; 2],
    /// The remaining memory budget for blocks, in bytes.
    left: u64,
    /// Offsets of blocks with a wrong checksum.
    damaged: Vec<u64>,
    /// Number of blocks that are too large to verify before they are used.
    unchecked: u64,
}

#[derive(Debug, Clone, Copy)]
struct Handle {
    offset: u64,
    size: u64,
}

pub(super) struct TableBlock<'a> {
    files: &'a FileSet,
    file: FileId,
    /// The offset of the contents in the file; unused if they are compressed.
    offset: u64,
    len: u64,
    /// The contents, unless they are left in the file.
    bytes: Option<Vec<u8>>,
    compressed: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    pub(super) start: u64,
    pub(super) end: u64,
}

/// Returns whether a file ends with the magic number of a table.
pub(crate) fn is_table(files: &FileSet, file: FileId) -> bool {
    let mut magic = [0; MAGIC.len()];
    let at = files.len(file).checked_sub(MAGIC.len() as u64);
    files.len(file) >= FOOTER
        && at.is_some_and(|at| files.read(file, at, &mut magic).is_ok())
        && magic == MAGIC
}

impl<'a> SortedTable<'a> {
    pub(super) fn open(files: &'a FileSet, file: FileId, limits: &'a Limits) -> Result<Self> {
        let start = files.len(file).checked_sub(FOOTER).filter(|_| is_table(files, file));
        let start = start.ok_or_else(|| {
            Error::damaged("the file does not end as a TensorFlow checkpoint's table does")
                .in_file(files.name(file))
                .advice("It may be cut short: compare its size with the original.")
        })?;
        let mut table = Self {
            files,
            file,
            limits,
            blocks: Vec::new(),
            frame: [Handle { offset: 0, size: 0 }; 2],
            left: limits.structure,
            damaged: Vec::new(),
            unchecked: 0,
        };
        let footer = files.read_vec(file, start, FOOTER)?;
        let mut rest = &footer[..];
        // The handle of the metaindex, which TensorFlow leaves empty, comes first.
        let meta = handle(&mut rest)?;
        let index = handle(&mut rest)?;
        table.frame = [meta, index];
        let mut blocks = Vec::new();
        let block = table.block(index)?;
        block.each(limits, &mut Vec::new(), |_, value| {
            blocks.push(handle(&mut &*block.bytes(value)?)?);
            Ok(())
        })?;
        table.blocks = blocks;
        Ok(table)
    }

    /// Returns the checksums of all blocks, including large ones. They cover the stored contents
    /// and the compression byte.
    pub(super) fn checks(&self) -> Result<Vec<Check>> {
        let handles = self.blocks.iter().chain(&self.frame);
        let check = |Handle { offset, size }: &Handle| {
            let len = size.saturating_add(1);
            let mut stored = [0; 4];
            let at = offset.saturating_add(len);
            self.files.read(self.file, at, &mut stored)?;
            Ok(Check {
                what: "a block of the table".into(),
                algorithm: Algorithm::MaskedCrc32c,
                layout: Layout::Span(Span { file: self.file, offset: *offset, len }),
                expected: u32::from_le_bytes(stored),
                found: None,
            })
        };
        handles.map(check).collect()
    }

    /// Calls `each` with every key and value, in order.
    pub(super) fn each(
        &mut self,
        mut each: impl FnMut(&[u8], &TableBlock<'a>, Range) -> Result<()>,
    ) -> Result<()> {
        let limits = self.limits;
        let mut last: Option<Vec<u8>> = None;
        let mut key_bytes = 0u64;
        let mut key = Vec::new();
        for index in 0..self.blocks.len() {
            let handle = self.blocks[index];
            let block = self.block(handle)?;
            block.each(limits, &mut key, |key, value| {
                if last.as_deref().is_some_and(|last| last >= key) {
                    return Err(
                        Error::damaged("the keys of the table are not in order").at(handle.offset)
                    );
                }
                key_bytes += key.len() as u64;
                Limits::check("bytes of all keys together", key_bytes, limits.key_bytes)?;
                let last = last.get_or_insert_default();
                last.clear();
                last.extend_from_slice(key);
                each(key, &block, value)
            })?;
        }
        Ok(())
    }

    /// Returns whether this is a table of the V1 Saver. In it, the value of the first, empty key
    /// begins with a message; the header of a bundle begins with numbers.
    pub(super) fn is_v1(&mut self) -> Result<bool> {
        let header = || {
            Error::damaged("the table does not begin with the header of a checkpoint")
                .in_file(self.files.name(self.file))
        };
        let Some(first) = self.blocks.first().copied() else { return Err(header()) };
        let name = header();
        let block = self.block(first)?;
        let mut first = None;
        block.each(self.limits, &mut Vec::new(), |key, value| {
            if first.is_none() {
                let start = Range { start: value.start, end: value.end.min(value.start + 1) };
                first = Some((key.is_empty(), block.bytes(start)?.first().copied()));
            }
            Ok(())
        })?;
        match first {
            Some((true, byte)) => Ok(byte == Some(0x0a)),
            _ => Err(name),
        }
    }

    /// Returns findings about the blocks that were read.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        if let Some(first) = self.damaged.first() {
            let name = self.files.name(self.file);
            let title = format!("The checksum of {} blocks of {name} is wrong", self.damaged.len());
            findings.push(
                Finding::new(Grade::Damage, title)
                    .detail("Names, shapes or offsets may have changed since they were written.")
                    .place(format!("{name}, byte {first}"))
                    .advice("Fetch the file again."),
            );
        }
        if self.unchecked > 0 {
            let title = format!("The checksums of {} large blocks are not checked", self.unchecked);
            findings.push(
                Finding::new(Grade::Note, title).detail("Opening a checkpoint reads no weights."),
            );
        }
        findings
    }

    fn block(&mut self, handle: Handle) -> Result<TableBlock<'a>> {
        let Handle { offset, size } = handle;
        let (files, file) = (self.files, self.file);
        let stored = size
            .checked_add(TRAILER)
            .filter(|stored| offset.checked_add(*stored).is_some_and(|end| end <= files.len(file)));
        let stored = stored.ok_or_else(|| {
            Error::damaged(format!(
                "a block of the table should have {size} bytes, but the file ends at byte {}",
                files.len(file)
            ))
            .at(offset)
            .in_file(files.name(file))
            .advice("The file may be cut short: compare its size with the original.")
        })?;
        let mut trailer = [0; TRAILER as usize];
        files.read(file, offset + size, &mut trailer)?;
        let [compression, crc @ ..] = trailer;
        let block = |bytes, len| TableBlock {
            files,
            file,
            offset,
            len,
            bytes,
            compressed: compression != 0,
        };
        if compression == 0 && size > LARGE {
            self.unchecked += 1;
            return Ok(block(None, size));
        }
        self.spend(stored)?;
        let mut bytes = files.read_vec(file, offset, size + 1)?;
        let wrong = crc::masked(&bytes) != u32::from_le_bytes(crc);
        if wrong && !self.damaged.contains(&offset) {
            self.damaged.push(offset);
        }
        bytes.pop();
        let bytes = match compression {
            0 => bytes,
            1 => self.snappy(&bytes).map_err(|error| error.at(offset).in_file(files.name(file)))?,
            other => {
                return Err(Error::unsupported(format!(
                    "a block of the table is compressed with method {other}"
                ))
                .at(offset)
                .in_file(files.name(file))
                .expected("0 (not compressed) or 1 (snappy)"));
            }
        };
        let len = bytes.len() as u64;
        Ok(block(Some(bytes), len))
    }

    fn snappy(&mut self, bytes: &[u8]) -> Result<Vec<u8>> {
        let bad = |error: snap::Error| {
            Error::damaged(format!("a block of the table can't be decompressed: {error}"))
        };
        let len = snap::raw::decompress_len(bytes).map_err(bad)?;
        // snappy: a copy of at most 64 bytes takes at least 2.
        if len as u64 > bytes.len() as u64 * 32 {
            return Err(Error::damaged(format!(
                "{} compressed bytes claim to hold {len}, which is impossible",
                bytes.len()
            )));
        }
        self.spend(len as u64)?;
        snap::raw::Decoder::new().decompress_vec(bytes).map_err(bad)
    }

    fn spend(&mut self, bytes: u64) -> Result<()> {
        Limits::check("bytes of a table", bytes, self.left)?;
        self.left -= bytes;
        Ok(())
    }
}

impl TableBlock<'_> {
    pub(super) fn bytes(&self, range: Range) -> Result<Cow<'_, [u8]>> {
        let Range { start, end } = range;
        if start > end || end > self.len {
            return Err(Error::damaged(format!(
                "bytes {start} to {end} of a block of {} are referenced",
                self.len
            ))
            .at(self.offset));
        }
        match &self.bytes {
            // Both ends are at most the length of a slice.
            Some(bytes) => Ok(Cow::Borrowed(&bytes[start as usize..end as usize])),
            None => {
                Ok(Cow::Owned(self.files.read_vec(self.file, self.offset + start, end - start)?))
            }
        }
    }

    /// Returns the location of a range of the block in the file, unless the block is compressed.
    pub(super) fn span(&self, range: Range) -> Option<Span> {
        let Range { start, end } = range;
        let fits = !self.compressed && start <= end && end <= self.len;
        fits.then(|| Span { file: self.file, offset: self.offset + start, len: end - start })
    }

    /// Reads a varint at `at`, and advances `at` past it.
    pub(super) fn varint(&self, at: &mut u64, end: u64) -> Result<u64> {
        let bytes = self.bytes(Range { start: *at, end: at.saturating_add(10).min(end) })?;
        let mut rest = &*bytes;
        let value = varint(&mut rest)?;
        *at += (bytes.len() - rest.len()) as u64;
        Ok(value)
    }

    /// Calls `each` with every key and the range of its value. `key` is a buffer for the keys.
    fn each(
        &self,
        limits: &Limits,
        key: &mut Vec<u8>,
        mut each: impl FnMut(&[u8], Range) -> Result<()>,
    ) -> Result<()> {
        let end = self.entries_end()?;
        let mut at = 0;
        key.clear();
        while at < end {
            let shared = self.varint(&mut at, end)?;
            let own = self.varint(&mut at, end)?;
            let len = self.varint(&mut at, end)?;
            let value = at.checked_add(own);
            let next = value.and_then(|value| value.checked_add(len)).filter(|next| *next <= end);
            let (Some(value), Some(next), true) = (value, next, shared <= key.len() as u64) else {
                return Err(Error::damaged("an entry of the table reaches beyond its block")
                    .at(self.offset)
                    .in_file(self.files.name(self.file)));
            };
            Limits::check("bytes of a key", shared.saturating_add(own), limits.string)?;
            key.truncate(shared as usize);
            key.extend_from_slice(&self.bytes(Range { start: at, end: value })?);
            each(key, Range { start: value, end: next })?;
            at = next;
        }
        Ok(())
    }

    /// Returns the end of the entries. After them come the offsets of restart points, and their
    /// number.
    fn entries_end(&self) -> Result<u64> {
        let bad = || {
            Error::damaged("a block of the table is shorter than it claims")
                .at(self.offset)
                .in_file(self.files.name(self.file))
        };
        let last = self.len.checked_sub(4).ok_or_else(bad)?;
        let count = self.bytes(Range { start: last, end: self.len })?;
        let count = count.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        last.checked_sub(4 * u64::from(count)).ok_or_else(bad)
    }
}

fn handle(bytes: &mut &[u8]) -> Result<Handle> {
    Ok(Handle { offset: varint(bytes)?, size: varint(bytes)? })
}
