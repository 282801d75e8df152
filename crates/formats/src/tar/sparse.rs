//! Sparse members: files with holes. The archive holds only the other parts.

use std::sync::Arc;

use statelens_checkpoint::{Error, ReadAt, Result};

use super::numbers::{Number, field, python};
use super::{BLOCK, MAX_EXTENSION};
use crate::section::{exactly, some};

/// Offset and length in bytes of each part of the file that is in the archive.
pub(super) type Map = Vec<(u64, u64)>;

/// The maximum number of parts of a member.
const MAX_PARTS: usize = 65_536;

/// Returns the map of a member of type `S`, the offset of its data, and the length of the file.
pub(super) fn old(
    source: &dyn ReadAt,
    header: &[u8; BLOCK as usize],
    mut start: u64,
) -> Option<(Map, u64, u64)> {
    let mut map = Map::new();
    let mut odd = false;
    let mut read = |pairs: &[u8], empty: bool| {
        for pair in pairs.chunks_exact(24) {
            match (field(&pair[..12]), field(&pair[12..])) {
                (Number::Plain(at), Number::Plain(len)) => {
                    // In the headers after the first, empty parts are ignored.
                    if empty || at != 0 && len != 0 {
                        map.push((at, len));
                    }
                }
                (Number::None, _) | (_, Number::None) => break,
                _ => odd = true,
            }
        }
    };
    read(&header[386..482], true);
    let mut more = header[482] != 0;
    let mut blocks = 0;
    while more {
        let block = exactly::<{ BLOCK as usize }>(source, start)?;
        read(&block[..504], false);
        more = block[504] != 0;
        start += BLOCK;
        blocks += 1;
        if blocks > MAX_PARTS / 21 {
            return None;
        }
    }
    match field(&header[483..495]) {
        Number::Plain(len) if !odd => Some((map, start, len)),
        _ => None,
    }
}

/// Reads the map before the data of a member of version 1.0: a count and that many pairs, each
/// number on its own line, padded to whole blocks.
pub(super) fn new(source: &dyn ReadAt, start: &mut u64) -> Option<Map> {
    let mut bytes = Vec::new();
    let mut at = 0;
    let mut blocks = 0;
    let mut line = |start: &mut u64| {
        // Reads a single block if no complete line is left, and no more than that.
        if blocks == 0 || !bytes[at..].contains(&b'\n') {
            bytes.extend(some(source, *start, BLOCK).ok()?);
            *start += BLOCK;
            blocks += 1;
        }
        let len = bytes[at..].iter().position(|byte| *byte == b'\n')?;
        let line = bytes[at..at + len].to_vec();
        at += len + 1;
        match python(&line, 10) {
            Number::Plain(number) if blocks * BLOCK <= MAX_EXTENSION => Some(number),
            _ => None,
        }
    };
    let count = line(start)?;
    let mut map = Map::new();
    for _ in 0..count {
        if map.len() >= MAX_PARTS {
            return None;
        }
        map.push((line(start)?, line(start)?));
    }
    Some(map)
}

/// A sparse file with its holes as zeros.
#[derive(Debug)]
pub(crate) struct Sparse {
    source: Arc<dyn ReadAt>,
    /// Offset in the file, length, and offset in `source`, in order.
    parts: Vec<(u64, u64, u64)>,
    len: u64,
}

impl Sparse {
    /// Returns the file whose parts are stored consecutively from `start` on. Returns `None` if the
    /// parts are not in order or exceed the file: how `tarfile` treats those depends on how they
    /// are read.
    pub(crate) fn new(
        source: &Arc<dyn ReadAt>,
        start: u64,
        map: &[(u64, u64)],
        len: u64,
    ) -> Option<Self> {
        let mut parts = Vec::new();
        let (mut behind, mut at) = (0, start);
        for (offset, size) in map {
            let end = offset.checked_add(*size)?;
            if *offset < behind || end > len {
                return None;
            }
            if *size > 0 {
                parts.push((*offset, *size, at));
            }
            at = at.checked_add(*size)?;
            behind = end;
        }
        (at <= source.len()).then(|| Self { source: source.clone(), parts, len })
    }
}

impl ReadAt for Sparse {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let end = offset.checked_add(buffer.len() as u64).filter(|end| *end <= self.len);
        let end = end.ok_or_else(|| Error::io("a read past the end").at(offset))?;
        buffer.fill(0);
        let first = self.parts.partition_point(|(at, size, _)| at + size <= offset);
        for (at, size, from) in &self.parts[first..] {
            if *at >= end {
                break;
            }
            let (low, high) = (offset.max(*at), end.min(at + size));
            let into = &mut buffer[(low - offset) as usize..(high - offset) as usize];
            self.source.read_at(from + (low - at), into)?;
        }
        Ok(())
    }
}
