//! Reads a truncated zip file. It has no directory, but each record begins with a header with its
//! name. The records are contiguous, the pickle first, and the pickle has the length of each
//! storage.
//!
//! Torch writes lengths and checksums after the data (PKWARE's appnote, 4.3.9), with the optional
//! signature.

use std::collections::HashMap;
use std::sync::Arc;

use statelens_checkpoint::{
    Builder, ByteOrder, Checkpoint, FileSet, Finding, FormatInfo, Grade, Layout, Limits, ReadAt,
    Result, Span, grouped,
};
use statelens_pickle::{Pickle, ScanOptions, Storage, Storages};

use crate::archive::{LOCAL_HEADER, ZIP};

/// The signature of the data descriptor, which torch writes after the data of a record.
const DESCRIPTOR: &[u8] = b"PK\x07\x08";
/// The maximum length of a small record (`version`, `byteorder`).
const SMALL: u64 = 4096;
/// The flag of a record whose lengths follow its data.
const LENGTHS_BEHIND: u16 = 8;

/// Opens the complete part of the file. Returns `None` if not even the pickle is complete.
pub(super) fn read(files: &FileSet, limits: &Limits) -> Result<Option<Checkpoint>> {
    let main = files.main()?;
    let source = files.structure(main)?;
    let mut walk = Walk { source: source.clone(), len: files.len(main), at: 0 };
    let Some((root, pickle)) = walk.pickle(limits)? else { return Ok(None) };
    let mut lengths: HashMap<String, u64> = pickle.storage_lengths().collect();
    let named = lengths.len();
    let mut found = Found { storages: HashMap::new(), order: ByteOrder::Little };
    let mut records = 0u64;
    while let Some(record) = walk.header()? {
        records += 1;
        Limits::check("records of the archive", records, limits.members)?;
        let name = record.name.strip_prefix(&root).unwrap_or_default();
        let key = name.strip_prefix("data/");
        let stated = key.and_then(|key| lengths.remove(key));
        let Some(len) = walk.length(&record, stated)? else { break };
        if name == "byteorder" && walk.bytes(&record, len)? == b"big" {
            found.order = ByteOrder::Big;
        }
        if let Some(key) = key {
            let number = found.storages.len() as u32;
            let layout = Layout::Span(Span { file: main, offset: record.start, len });
            found.storages.insert(key.to_owned(), Storage { number, layout, len });
        }
    }
    let mut findings = pickle.scan(&ScanOptions::default());
    let whole = found.storages.len();
    findings.push(
        Finding::new(Grade::Damage, "The file is cut short")
            .detail(format!(
                "{} of {} storages are whole, and their tensors can be used. The rest of the file, \
                 with the directory at its end, is missing. torch refuses the file.",
                grouped(whole as u64),
                grouped(named as u64)
            ))
            .advice("Copy or download it again."),
    );
    let mut builder = Builder::new(limits);
    let lowered = pickle.lower(&mut builder, &mut found)?;
    findings.extend(lowered.findings);
    let format = FormatInfo {
        id: "torch-zip",
        name: "PyTorch zip",
        facts: vec![("Pickle protocol".into(), pickle.protocol().to_string())],
        ..FormatInfo::default()
    };
    builder.finish(lowered.root, format, files.clone(), findings).map(Some)
}

/// The complete storages.
struct Found {
    storages: HashMap<String, Storage>,
    order: ByteOrder,
}

impl Storages for Found {
    fn storage(&mut self, key: &str, len: u64) -> Storage {
        let number = self.storages.len() as u32;
        let missing = || Storage {
            number,
            layout: Layout::Missing("the file is cut short before its end".into()),
            len,
        };
        self.storages.entry(key.to_owned()).or_insert_with(missing).clone()
    }

    fn byte_order(&self) -> ByteOrder {
        self.order
    }
}

/// A record whose local header was read.
struct CutRecord {
    name: String,
    /// Offset of its data.
    start: u64,
    flags: u16,
    /// Its length, if the header has it.
    len: u64,
}

/// Iterates over the records.
struct Walk {
    source: Arc<dyn ReadAt>,
    len: u64,
    at: u64,
}

impl Walk {
    /// Returns the folder of the records, and the pickle, which is the first record.
    fn pickle(&mut self, limits: &Limits) -> Result<Option<(String, Pickle)>> {
        let Some(record) = self.header()? else { return Ok(None) };
        let Some(root) = record.name.strip_suffix("data.pkl") else { return Ok(None) };
        let most = (self.len - record.start).min(limits.structure);
        let mut len = most.min(1 << 20);
        let pickle = loop {
            let bytes = self.bytes(&record, len)?;
            match statelens_pickle::read(&bytes, record.start, limits) {
                Ok(pickle) => break pickle,
                Err(broken) if broken.starved && len < most => {
                    len = most.min(len.saturating_mul(4));
                }
                Err(_) => return Ok(None),
            }
        };
        let end = self.length(&record, Some(pickle.end()))?;
        Ok(end.map(|_| (root.to_owned(), pickle)))
    }

    /// Reads the header at the current position; `None` if there is no complete header.
    fn header(&mut self) -> Result<Option<CutRecord>> {
        let mut header = [0; LOCAL_HEADER as usize];
        if self.len.saturating_sub(self.at) < LOCAL_HEADER {
            return Ok(None);
        }
        self.source.read_at(self.at, &mut header)?;
        let short = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let lengths = [18, 22].map(|at| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        });
        let is_plain = header.starts_with(ZIP) && short(8) == 0 && lengths[0] == lengths[1];
        let start = self.at + LOCAL_HEADER + u64::from(short(26)) + u64::from(short(28));
        if !is_plain || start > self.len {
            return Ok(None);
        }
        let mut name = vec![0; usize::from(short(26))];
        self.source.read_at(self.at + LOCAL_HEADER, &mut name)?;
        let Ok(name) = String::from_utf8(name) else { return Ok(None) };
        Ok(Some(CutRecord { name, start, flags: short(6), len: u64::from(lengths[0]) }))
    }

    /// Returns the length of the record's data if it is complete, and advances past the record.
    /// `stated` is the length according to the pickle.
    fn length(&mut self, record: &CutRecord, stated: Option<u64>) -> Result<Option<u64>> {
        let CutRecord { start, flags, len, .. } = record;
        if flags & LENGTHS_BEHIND == 0 && *len != u64::from(u32::MAX) {
            let end = start.checked_add(*len).filter(|end| *end <= self.len);
            self.at = end.unwrap_or(self.len);
            return Ok(end.map(|_| *len));
        }
        let len = match stated {
            Some(len) => len,
            None => match self.search(*start)? {
                Some(len) => len,
                None => return Ok(None),
            },
        };
        let Some(end) = start.checked_add(len).filter(|end| *end <= self.len) else {
            return Ok(None);
        };
        // Followed by the checksum and the lengths: 4 and 2 x 4 bytes, or 2 x 8 for large records.
        let mut behind = vec![0; (self.len - end).min(24) as usize];
        self.source.read_at(end, &mut behind)?;
        self.at = match described(&behind, len) {
            Some(behind) => end + behind,
            None if behind.len() < 24 => self.len,
            None => return Ok(None),
        };
        Ok(Some(len))
    }

    /// Finds the length of a small record by searching for its data descriptor.
    fn search(&self, start: u64) -> Result<Option<u64>> {
        let mut bytes = vec![0; (self.len - start).min(SMALL + 24) as usize];
        self.source.read_at(start, &mut bytes)?;
        let mut places = (0..bytes.len()).map(|at| (at as u64, &bytes[at..]));
        Ok(places.find(|(len, rest)| described(rest, *len).is_some()).map(|(len, _)| len))
    }

    fn bytes(&self, record: &CutRecord, len: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len.min(self.len - record.start) as usize];
        self.source.read_at(record.start, &mut bytes)?;
        Ok(bytes)
    }
}

/// Returns the length of the data descriptor at this position, if it describes a record of `len`
/// bytes.
fn described(behind: &[u8], len: u64) -> Option<u64> {
    let lengths = behind.strip_prefix(DESCRIPTOR)?.get(4..)?;
    let whole = |bytes: &[u8]| {
        let mut number = [0; 8];
        number[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(number) == len
    };
    let twice = |size: usize| {
        let both = lengths.get(..2 * size);
        both.is_some_and(|both| whole(&both[..size]) && whole(&both[size..]))
    };
    if twice(4) {
        return Some(16);
    }
    twice(8).then_some(24)
}
