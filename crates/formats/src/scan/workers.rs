//! Threads that search a large file.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use statelens_checkpoint::{ReadAt, Result, Workers};

use super::starts::{self, Scratch, Starts};

/// Bytes that are searched at once.
const PIECE: u64 = 256 << 10;
/// The same if a read is expensive.
const REMOTE_PIECE: u64 = 1 << 20;
/// Pieces that one thread searches in a row.
const PIECES: u64 = 8;
/// Runs of pieces per thread that are searched before their starts are examined.
const RUNS: u64 = 4;

/// The buffers of searches, which later ones reuse.
#[derive(Default)]
pub(super) struct Buffers(Mutex<Vec<Scratch>>);

impl Buffers {
    fn take(&self) -> Scratch {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn put(&self, scratch: Scratch) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(scratch);
    }
}

/// The starts in consecutive pieces of a source.
pub(super) struct FoundStarts {
    /// The pieces, each with its starts.
    pub(super) pieces: Vec<(Range<u64>, Starts)>,
    /// The end of the last one.
    pub(super) end: u64,
}

/// Finds the starts in the next bytes of a source, from `at` on.
pub(super) fn find(
    source: &dyn ReadAt,
    at: u64,
    workers: &dyn Workers,
    buffers: &Buffers,
) -> Result<FoundStarts> {
    let is_remote = source.overhead() > 0;
    let (piece, threads) = match is_remote {
        true => (REMOTE_PIECE, 1),
        false => (PIECE, workers.count() as u64),
    };
    let run = piece * PIECES;
    let end = source.len().min(at.saturating_add(run * RUNS * threads));
    let runs = (end - at).div_ceil(run);
    let found: Vec<Mutex<Result<Vec<_>>>> = (0..runs).map(|_| Mutex::new(Ok(Vec::new()))).collect();
    let search = |number: usize| {
        let start = at + number as u64 * run;
        let mut scratch = buffers.take();
        let pieces = search(source, start..end.min(start + run), piece, &mut scratch);
        buffers.put(scratch);
        if let Some(slot) = found.get(number) {
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = pieces;
        }
    };
    match threads.min(runs) {
        0 | 1 => (0..found.len()).for_each(search),
        _ => workers.each(found.len(), &search),
    }
    let mut pieces = Vec::new();
    for slot in found {
        pieces.extend(slot.into_inner().unwrap_or_else(PoisonError::into_inner)?);
    }
    Ok(FoundStarts { pieces, end })
}

fn search(
    source: &dyn ReadAt,
    range: Range<u64>,
    piece: u64,
    scratch: &mut Scratch,
) -> Result<Vec<(Range<u64>, Starts)>> {
    let mut pieces = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let next = range.end.min(at + piece);
        pieces.push((at..next, starts::find(source, at..next, scratch)?));
        at = next;
    }
    Ok(pieces)
}
