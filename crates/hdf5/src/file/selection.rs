//! Describes the selections of region references.
//!
//! Format: "Dataspace Selection", HDF5 File Format Specification 3.0, section VIII.D. The same
//! blocks have the same description, whichever version of the format lists them.

use statelens_checkpoint::{Error, Result};

use crate::block::little;

/// Describes an encoded selection: `all`, `nothing`, `points (0, 1), (2, 3)`, `[0:2, 3:9:2]`.
pub(super) fn describe(bytes: &[u8]) -> Result<String> {
    let mut cursor = Cursor(bytes);
    match (cursor.number(4)?, cursor.number(4)?) {
        (NONE, _) => Ok("nothing".into()),
        (ALL, _) => Ok("all".into()),
        (POINTS, version @ (1 | 2)) => {
            let wide = if version == 1 { cursor.after(8, 4)? } else { cursor.width()? };
            let rank = cursor.rank()?;
            let count = cursor.number(wide)?;
            let points = cursor.list(count, |cursor| cursor.numbers(rank, wide))?;
            let point = |point: &Vec<u64>| format!("({})", joined(point.iter()));
            Ok(format!("points {}", joined(points.iter().map(point))))
        }
        (BLOCKS, version @ 1..=3) => {
            let flags = if version == 1 { 0 } else { cursor.number(1)? };
            let wide = match version {
                1 => cursor.after(8, 4)?,
                2 => cursor.after(4, 8)?,
                _ => cursor.width()?,
            };
            let rank = cursor.rank()?;
            if flags & REGULAR != 0 {
                let steps = cursor.list(rank as u64, |cursor| {
                    let [start, stride, count, len] = [0; 4].map(|_| cursor.number(wide));
                    Ok(Steps { start: start?, stride: stride?, count: count?, len: len? })
                })?;
                return Ok(format!("[{}]", joined(steps.iter().map(Steps::text))));
            }
            let count = cursor.number(wide)?;
            let mut blocks = cursor.list(count, |cursor| {
                let (first, last) = (cursor.numbers(rank, wide)?, cursor.numbers(rank, wide)?);
                let pairs = first.into_iter().zip(last);
                Ok(pairs.map(|(first, last)| Steps::block(first, last)).collect::<Vec<_>>())
            })?;
            if let Some(steps) = regular(&blocks, rank) {
                return Ok(format!("[{}]", joined(steps.iter().map(Steps::text))));
            }
            blocks.sort_unstable();
            let block = |block: &Vec<Steps>| format!("[{}]", joined(block.iter().map(Steps::text)));
            Ok(joined(blocks.iter().map(block)))
        }
        (kind, version) => {
            Err(Error::unsupported(format!("a selection of kind {kind}, version {version}")))
        }
    }
}

/// Returns the error for a selection that ends too early.
pub(super) fn short() -> Error {
    Error::damaged("the selection of a region reference ends too early")
}

const NONE: u64 = 0;
const POINTS: u64 = 1;
const BLOCKS: u64 = 2;
const ALL: u64 = 3;
/// The flag of blocks that are given by start, stride, count and length in each dimension.
const REGULAR: u64 = 1;
/// The maximum of HDF5.
const MAX_DIMENSIONS: u64 = 32;

/// Blocks along one dimension.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Steps {
    start: u64,
    stride: u64,
    count: u64,
    len: u64,
}

impl Steps {
    fn block(first: u64, last: u64) -> Self {
        Self {
            start: first,
            stride: 1,
            count: 1,
            len: last.saturating_sub(first).saturating_add(1),
        }
    }

    fn text(&self) -> String {
        let Self { start, stride, count, len } = *self;
        let end = |len: u64| start.saturating_add(len);
        let last = count.saturating_sub(1).saturating_mul(stride);
        match (count, len) {
            (1, 1) => start.to_string(),
            (1, _) => format!("{start}:{}", end(len)),
            _ if stride == len => format!("{start}:{}", end(count.saturating_mul(len))),
            (_, 1) => format!("{start}:{}:{stride}", end(last.saturating_add(1))),
            _ => format!("{start}:{}:{stride} by {len}", end(last.saturating_add(len))),
        }
    }
}

/// Returns blocks as steps in each dimension, if they are a regular grid.
fn regular(blocks: &[Vec<Steps>], rank: usize) -> Option<Vec<Steps>> {
    let mut all = 1u64;
    let mut steps = Vec::with_capacity(rank);
    for axis in 0..rank {
        let mut along: Vec<Steps> = blocks.iter().map(|block| block[axis]).collect();
        along.sort_unstable();
        along.dedup();
        let (first, second) = (*along.first()?, along.get(1));
        let stride = second.map_or(1, |second| second.start - first.start);
        let is_even = along.windows(2).all(|two| two[1].start - two[0].start == stride);
        if !is_even || along.iter().any(|block| block.len != first.len) {
            return None;
        }
        let count = along.len() as u64;
        all = all.checked_mul(count)?;
        steps.push(Steps { stride, count, ..first });
    }
    // Blocks don't overlap, so this many are the whole grid.
    (all == blocks.len() as u64).then_some(steps)
}

/// The rest of an encoded selection.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn number(&mut self, wide: usize) -> Result<u64> {
        let (head, rest) = self.0.split_at_checked(wide).ok_or_else(short)?;
        self.0 = rest;
        Ok(little(head))
    }

    /// Skips bytes, and returns the width of the numbers that follow.
    fn after(&mut self, skipped: usize, wide: usize) -> Result<usize> {
        self.number(skipped).map(|_| wide)
    }

    /// Returns the width of the numbers that follow, which is stored.
    fn width(&mut self) -> Result<usize> {
        match self.number(1)? {
            wide @ (2 | 4 | 8) => Ok(wide as usize),
            wide => Err(Error::damaged(format!("a selection with numbers of {wide} bytes"))),
        }
    }

    fn rank(&mut self) -> Result<usize> {
        match self.number(4)? {
            rank @ 1..=MAX_DIMENSIONS => Ok(rank as usize),
            rank => Err(Error::damaged(format!("a selection in {rank} dimensions"))),
        }
    }

    fn numbers(&mut self, count: usize, wide: usize) -> Result<Vec<u64>> {
        (0..count).map(|_| self.number(wide)).collect()
    }

    /// Reads `count` entries, each of at least one byte.
    fn list<T>(
        &mut self,
        count: u64,
        mut entry: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        if count > self.0.len() as u64 {
            return Err(short());
        }
        (0..count).map(|_| entry(self)).collect()
    }
}

fn joined(items: impl Iterator<Item = impl ToString>) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}
