//! Finds the places of tensors, and reads the values of their pieces.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use statelens_checkpoint::{Checkpoint, Error, Layout, Leaf, Result, Tensor, TensorId};
use statelens_convert::alone;
use statelens_describe::{StoredPiece, in_pieces, piece, pieces};
use statelens_tensor::{Machine as _, numbers};
use statelens_values::weights::{Survey, TensorOutcome};
use wasm_bindgen::JsValue;

use crate::byte_map::state::takes_room;
use crate::pieces::message::{
    MISSING, PieceRequest, PieceStatistics, StoragePlaces, TensorPiece, TensorPieces,
};
use crate::rows::Row;
use crate::worker::job::Job;
use crate::worker::opened::OpenCheckpoint;
use crate::worker::places::PlaceIndex;
use crate::worker::reading::drive;
use crate::worker::session::SharedSession;
use crate::worker::task::Task;

/// The maximum number of runs that are sent; shorter ones are merged.
const MAX_RUNS: u64 = 8_192;
/// The maximum number of pieces of a tensor that are sent.
const MAX_PIECES: usize = 1 << 16;
/// Bytes of a piece that are summarised at a time.
const PART: u64 = 32 << 20;

/// Returns the places of a checkpoint, and the runs along the tape. `stored` returns the tensor that
/// holds the bytes of a row.
pub(crate) fn places<'a>(
    checkpoint: &'a Checkpoint,
    rows: &[Row],
    stored: impl Fn(usize) -> Option<(&'a Leaf, &'a Tensor)>,
) -> (PlaceIndex, StoragePlaces) {
    let mut facts = checkpoint.format.facts.iter();
    let line = facts.find(|(name, _)| name == "Joined").map_or("", |(_, text)| text);
    let index = PlaceIndex::of(checkpoint);
    let incomplete = line.contains("incomplete") || line.contains("missing");
    let (line, are_ranks) = (line.to_owned(), index.are_ranks);
    let mut places = StoragePlaces { line, incomplete, are_ranks, ..StoragePlaces::default() };
    if index.names.len() < 2 {
        return (index, places);
    }
    places.names.clone_from(&index.names);
    let total = rows.iter().filter(|row| takes_room(row)).map(|row| row.bytes);
    let total = total.fold(0u64, u64::saturating_add);
    let mut runs = Runs { runs: Vec::new(), least: 0 };
    for (at, row) in rows.iter().enumerate().filter(|(_, row)| takes_room(row)) {
        let Some((leaf, tensor)) = stored(at) else {
            runs.push(MISSING, row.bytes);
            continue;
        };
        if let Layout::Span(span) = &tensor.layout {
            runs.push(index.place(checkpoint.files.name(span.file)), row.bytes);
            continue;
        }
        let tensor = in_pieces(checkpoint, &leaf.flat, tensor);
        let all = pieces(checkpoint, &tensor);
        let size = |piece: &StoredPiece| piece.shape.iter().product::<u64>().max(1);
        let whole = all.iter().map(size).fold(0u64, u64::saturating_add).max(1);
        let (mut passed, mut end) = (0u64, 0u64);
        for piece in &all {
            passed = passed.saturating_add(size(piece));
            let next = (u128::from(row.bytes) * u128::from(passed) / u128::from(whole)) as u64;
            runs.push(index.place(&piece.file), next - end);
            end = next;
        }
        if runs.runs.len() as u64 > 2 * MAX_RUNS {
            runs.merge((total / MAX_RUNS).max(1));
        }
    }
    places.runs = runs.runs;
    (index, places)
}

/// Runs of bytes in one place each.
struct Runs {
    runs: Vec<(u32, u64)>,
    /// Shorter runs are merged with the one before.
    least: u64,
}

impl Runs {
    fn push(&mut self, place: u32, bytes: u64) {
        match self.runs.last_mut() {
            Some((last, len)) if *last == place || *len < self.least => {
                if bytes > *len {
                    *last = place;
                }
                *len = len.saturating_add(bytes);
            }
            _ => self.runs.push((place, bytes)),
        }
    }

    fn merge(&mut self, least: u64) {
        self.least = least;
        for (place, bytes) in std::mem::take(&mut self.runs) {
            self.push(place, bytes);
        }
    }
}

/// Returns the pieces of a row; `None` if it is stored in one place.
pub(crate) fn pieces_of(open: &OpenCheckpoint, row: u32) -> Option<TensorPieces> {
    let stored = open.stored();
    let (checkpoint, index) = (&stored.checkpoint, &open.places);
    let leaf = open.leaves.get(row as usize)?;
    let (_, tensor) = open.checkpoint.tensor_of(leaf.target)?;
    let tensor = in_pieces(checkpoint, &leaf.flat, tensor);
    let all = pieces(checkpoint, &tensor);
    let copies = checkpoint.replicas.iter().filter(|replica| replica.key == leaf.flat);
    let mut copied: HashMap<(String, u64), Vec<u32>> = HashMap::new();
    for replica in copies {
        let [used, copy] = replica.copies.each_ref().map(|copy| pieces(checkpoint, copy));
        if let ([used, ..], [copy, ..]) = (&used[..], &copy[..]) {
            let place = (used.file.clone(), used.offset);
            copied.entry(place).or_default().push(index.place(&copy.file));
        }
    }
    if all.len() < 2 && copied.is_empty() || all.len() > MAX_PIECES {
        return None;
    }
    let mut found = TensorPieces::default();
    let mut known: HashMap<String, u32> = HashMap::new();
    let mut used: HashSet<u32> = HashSet::new();
    for StoredPiece { at, shape, file, offset, bytes, .. } in all {
        let place = index.place(&file);
        let copies = copied.remove(&(file.clone(), offset)).unwrap_or_default();
        used.insert(place);
        used.extend(&copies);
        let next = known.len() as u32;
        let file = *known.entry(file).or_insert_with_key(|name| {
            found.files.push(name.clone());
            next
        });
        found.pieces.push(TensorPiece { at, shape, place, file, offset, bytes, copies });
    }
    let all = 0..index.names.len() as u32;
    // A rank may hold a missing piece.
    let is_known = index.are_ranks && !used.contains(&MISSING);
    found.without = all.filter(|place| is_known && !used.contains(place)).collect();
    Some(found)
}

/// Begins reading the values of a piece.
pub(crate) fn start(session: &SharedSession, job: Job, request: PieceRequest, _: &JsValue) {
    let Some(open) = session.borrow().open.clone() else { return };
    Task::start(open, job, async move |task: &Task| read(task, request).await);
}

async fn read(task: &Task, request: PieceRequest) -> Result<PieceStatistics> {
    let (open, stored) = (&task.open, task.open.stored());
    let leaf = open.leaves.get(request.row as usize);
    let found = leaf.and_then(|leaf| Some((leaf, open.checkpoint.tensor_of(leaf.target)?.1)));
    let (leaf, tensor) = found.ok_or_else(|| Error::refused("this is not a tensor"))?;
    let tensor = in_pieces(&stored.checkpoint, &leaf.flat, tensor);
    let one = piece(&tensor, request.piece as usize);
    let one = one.ok_or_else(|| Error::refused("there is no such piece"))?;
    let one = numbers(&one)
        .ok_or_else(|| Error::unsupported(format!("values of {} can't be decoded", one.dtype)))?;
    let alone = alone(&open.checkpoint, [("piece", one.into_owned())], &open.limits)?;
    let mut survey = Survey::divided(Arc::new(alone), [TensorId(0)], PART);
    drive(&mut survey, &[&open.sources], &task.job, |survey, time| {
        if time {
            task.progress(survey.progress());
        }
    })
    .await?;
    match survey.take().pop() {
        Some((_, TensorOutcome::Read(summary))) => {
            let statistics = (&summary.statistics()).into();
            Ok(PieceStatistics { request, statistics })
        }
        Some((_, TensorOutcome::Without(reason) | TensorOutcome::Unread(reason))) => {
            Err(Error::damaged(reason))
        }
        _ => Err(Error::refused("it was not read")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_runs_are_merged_and_no_byte_is_lost() {
        let mut runs = Runs { runs: Vec::new(), least: 0 };
        for at in 0..100 {
            runs.push(at % 4, 10);
        }
        assert_eq!(runs.runs.len(), 100);
        runs.merge(50);
        assert!(runs.runs.len() <= 20, "{:?}", runs.runs);
        assert_eq!(runs.runs.iter().map(|run| run.1).sum::<u64>(), 1_000);
    }
}
