//! Items of a work in pieces, so that several workers read one large tensor. Where pieces begin
//! depends on the tensor alone, so that what is added up comes to the same whoever reads it.

use std::ops::Range;

use statelens_checkpoint::{Layout, Result, Tensor};
use statelens_tensor::BUDGET;

/// Which item, and which of its elements; those of an item follow each other.
#[derive(Default)]
pub(crate) struct Pieces(Vec<(usize, Range<u64>)>);

impl Pieces {
    /// An item of so many elements, in pieces of about `most`, which begin at multiples of `grain`;
    /// in one piece where there is none.
    pub(crate) fn push(&mut self, item: usize, numel: u64, grain: Option<u64>, most: u64) {
        let size = grain.map_or(u64::MAX, |grain| {
            let grain = grain.max(1);
            (most / grain).max(1).saturating_mul(grain)
        });
        let start = |at: u64| at.saturating_mul(size).min(numel);
        let pieces = 0..numel.div_ceil(size).max(1);
        self.0.extend(pieces.map(|at| (item, start(at)..start(at + 1))));
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The item of a piece; of none, the one behind the last.
    pub(crate) fn item(&self, piece: usize) -> usize {
        let last = || self.0.last().map_or(0, |(item, _)| item + 1);
        self.0.get(piece).map_or_else(last, |(item, _)| *item)
    }

    pub(crate) fn range(&self, piece: usize) -> Range<u64> {
        self.0.get(piece).map_or(0..0, |(_, range)| range.clone())
    }

    /// Puts together what came of the pieces of an item: all of it with the last one. What is wrong
    /// with the first piece that is damaged is what is told.
    pub(crate) fn join<T>(
        &self,
        piece: usize,
        begun: &mut Option<Result<T>>,
        found: Result<T>,
        merge: impl FnOnce(&mut T, T),
    ) -> Option<Result<T>> {
        let whole = match (begun.take(), found) {
            (None, found) => found,
            (Some(Ok(mut before)), Ok(found)) => {
                merge(&mut before, found);
                Ok(before)
            }
            (Some(Err(error)), _) | (Some(Ok(_)), Err(error)) => Err(error),
        };
        if self.item(piece) != self.item(piece + 1) {
            return Some(whole);
        }
        *begun = Some(whole);
        None
    }
}

/// A tensor can be read from each multiple of so many elements on, with nothing read or decoded
/// twice by those who read other parts; `None` if it is read as a whole.
pub(crate) fn grain(tensor: &Tensor) -> Option<u64> {
    match &tensor.layout {
        Layout::Span(_) => Some(1),
        // All chunks that begin at one index of the first dimension, if a gather holds them.
        Layout::Chunked(chunked) => {
            let rest =
                tensor.shape.get(1..)?.iter().try_fold(1u64, |len, dim| len.checked_mul(*dim))?;
            let elements = chunked.shape.first()?.checked_mul(rest)?;
            let bytes = elements.checked_mul(tensor.stored.itemsize())?;
            (elements > 0 && bytes <= BUDGET as u64 / 4).then_some(elements)
        }
        _ => None,
    }
}
