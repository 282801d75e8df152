//! Zip archives as any of their readers would parse them. The crate `zip` rejects inconsistent
//! archives, but this module must examine them: Python's `zipfile` uses the directory directly
//! before its end record, torch's miniz the one at the offset in that record. Other data may
//! precede or follow either of them.

use std::sync::Arc;

use statelens_checkpoint::ReadAt;

use super::section::{exactly, some};
use crate::packed::Packing;

/// The signature of the end record.
pub(super) const END: &[u8] = b"PK\x05\x06";
/// The signature of a local header.
pub(super) const LOCAL: &[u8] = b"PK\x03\x04";

const END_LEN: u64 = 22;
/// The maximum length of the comment after the end record.
const MAX_COMMENT: u64 = 0xffff;

/// The location of a directory, and the base of its offsets, modulo 2^64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Directory {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) base: u64,
}

pub(super) struct ZipEntry {
    pub(super) name: Vec<u8>,
    pub(super) packing: Result<Option<Packing>, &'static str>,
    pub(super) stored: u64,
    /// The uncompressed length.
    pub(super) len: u64,
    pub(super) crc: u32,
    /// Offset of the local header.
    pub(super) header: u64,
}

pub(super) struct Local {
    pub(super) name: Vec<u8>,
    pub(super) packing: Result<Option<Packing>, &'static str>,
    /// 0 if the length is elsewhere.
    pub(super) stored: u64,
    /// Offset of the data.
    pub(super) start: u64,
}

/// Returns the offset of the last end record in the last bytes, where readers look for it.
pub(super) fn last_end(source: &dyn ReadAt) -> Option<u64> {
    let from = source.len().saturating_sub(END_LEN + MAX_COMMENT);
    let tail = some(source, from, END_LEN + MAX_COMMENT).ok()?;
    let at = tail.windows(4).rposition(|bytes| bytes == END)?;
    Some(from + at as u64)
}

/// Returns all directories that any reader may find from an end record. With Zip64, torch uses the
/// Zip64 end record at the offset given directly before the end record, and Python the one directly
/// before that. If neither exists, both use the end record itself.
pub(super) fn directories(source: &dyn ReadAt, end: u64) -> Vec<Directory> {
    let Some(record) = exactly::<{ END_LEN as usize }>(source, end) else { return Vec::new() };
    let mut found = Vec::new();
    let mut add = |start: u64, stop: u64, base: u64| {
        let stop = stop.min(source.len());
        let sound =
            start < stop && exactly::<4>(source, start).is_some_and(|head| head == *b"PK\x01\x02");
        let directory = Directory { start, end: stop, base };
        if sound && !found.contains(&directory) {
            found.push(directory);
        }
    };
    // Those of Python and torch, unless there is a Zip64 end record where they look for it.
    let (mut by_size, mut by_offset) = (true, true);
    let (size, offset) = (u64::from(u32_at(&record, 12)), u64::from(u32_at(&record, 16)));
    let mut records = Vec::new();
    if let Some(locator) = end.checked_sub(20).and_then(|at| exactly::<20>(source, at))
        && locator.starts_with(b"PK\x06\x07")
    {
        let before = end.checked_sub(76);
        for (at, alone) in [(Some(u64_at(&locator, 8)), &mut by_offset), (before, &mut by_size)] {
            if let Some(at) = at
                && let Some(large) = exactly::<56>(source, at)
                && large.starts_with(b"PK\x06\x06")
            {
                *alone = false;
                let (size, offset) = (u64_at(&large, 40), u64_at(&large, 48));
                records.push((size, offset, at, true, true));
                records.extend(before.map(|before| (size, offset, before, true, true)));
            }
        }
    }
    records.push((size, offset, end, by_size, by_offset));
    for (size, offset, stop, by_size, by_offset) in records {
        if by_offset {
            // It may also be in the comment after the end record.
            add(offset, offset.saturating_add(size).max(stop), 0);
        }
        if let Some(start) = stop.checked_sub(size).filter(|_| by_size) {
            // Python computes offsets from there, even if that is before the start of the file.
            add(start, stop, start.wrapping_sub(offset));
        }
    }
    found
}

/// Iterates over a directory until `each` returns false.
pub(super) fn entries(
    source: &Arc<dyn ReadAt>,
    directory: Directory,
    each: &mut dyn FnMut(ZipEntry) -> bool,
) {
    let mut at = directory.start;
    while at < directory.end
        && let Some(fixed) = exactly::<46>(&**source, at)
        && fixed.starts_with(b"PK\x01\x02")
    {
        let [name, extra, comment] = [28, 30, 32].map(|at| u64::from(u16_at(&fixed, at)));
        let Ok(rest) = some(&**source, at + 46, name + extra) else { return };
        let Some((name, extra)) = rest.split_at_checked(name as usize) else { return };
        let mut stored = u64::from(u32_at(&fixed, 20));
        let mut header = u64::from(u32_at(&fixed, 42));
        let mut len = u64::from(u32_at(&fixed, 24));
        enlarge(extra, [&mut len, &mut stored, &mut header]);
        let entry = ZipEntry {
            name: name.to_vec(),
            packing: packing(u16_at(&fixed, 8), u16_at(&fixed, 10)),
            stored,
            len,
            crc: u32_at(&fixed, 16),
            header: directory.base.wrapping_add(header),
        };
        if !each(entry) {
            return;
        }
        at += 46 + rest.len() as u64 + comment;
    }
}

pub(super) fn local(source: &dyn ReadAt, at: u64) -> Option<Local> {
    let fixed = exactly::<30>(source, at).filter(|fixed| fixed.starts_with(LOCAL))?;
    let [name, extra] = [26, 28].map(|at| u64::from(u16_at(&fixed, at)));
    let (flags, method) = (u16_at(&fixed, 6), u16_at(&fixed, 8));
    let stored = match u32_at(&fixed, 18) {
        u32::MAX => 0,
        stored => u64::from(stored),
    };
    Some(Local {
        name: some(source, at + 30, name).ok()?,
        packing: packing(flags, method),
        stored,
        start: at + 30 + name + extra,
    })
}

/// Returns `None` if the data is not compressed. The error is the reason why it can't be read.
fn packing(flags: u16, method: u16) -> Result<Option<Packing>, &'static str> {
    if flags & 1 != 0 {
        return Err("is encrypted");
    }
    Ok(Some(match method {
        0 => return Ok(None),
        8 => Packing::Deflate,
        12 => Packing::Bzip2,
        14 => Packing::ZipLzma,
        93 => Packing::Zstd,
        95 => Packing::Xz,
        _ => return Err("is compressed in a way that Statelens does not unpack"),
    }))
}

/// Reads lengths that exceed 32 bits from the extra field.
fn enlarge(extra: &[u8], lengths: [&mut u64; 3]) {
    let mut rest = extra;
    while let Some((&[a, b, c, d], after)) = rest.split_first_chunk::<4>() {
        let len = usize::from(u16::from_le_bytes([c, d])).min(after.len());
        let (mut field, next) = after.split_at(len);
        rest = next;
        if u16::from_le_bytes([a, b]) != 1 {
            continue;
        }
        let mut take = || {
            let (number, after) = field.split_first_chunk::<8>()?;
            field = after;
            Some(u64::from_le_bytes(*number))
        };
        for value in lengths {
            if *value == u64::from(u32::MAX) {
                *value = take().unwrap_or(*value);
            }
        }
        return;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
