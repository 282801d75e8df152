//! Splits the items of a task into pieces, so that several workers can read one large tensor. The
//! split depends on the tensor alone, so that sums do not depend on the workers.

use std::ops::Range;

use statelens_checkpoint::Result;

/// Maximum number of pieces per item; limited because a file can claim any number of elements.
const MAX_PIECES: u64 = 1 << 10;

/// Items, each split into consecutive pieces.
#[derive(Default)]
pub struct Pieces {
    items: Vec<ItemPieces>,
    count: usize,
}

struct ItemPieces {
    item: usize,
    /// The index of its first piece.
    first: usize,
    numel: u64,
    /// Number of elements of each piece except the last.
    size: u64,
}

impl Pieces {
    /// Adds an item of `numel` elements in pieces of about `most`, or more if there would be too
    /// many pieces. Pieces begin at multiples of `grain`; without it, the item is one piece.
    pub fn push(&mut self, item: usize, numel: u64, grain: Option<u64>, most: u64) {
        let size = grain.map_or(u64::MAX, |grain| {
            let (grain, least) = (grain.max(1), numel.div_ceil(MAX_PIECES));
            let grains = (most / grain).max(least.div_ceil(grain)).max(1);
            grains.saturating_mul(grain)
        });
        self.items.push(ItemPieces { item, first: self.count, numel, size });
        self.count += numel.div_ceil(size).max(1) as usize;
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the item of a piece; for an index past the last piece, the index past the last item.
    pub fn item(&self, piece: usize) -> usize {
        let behind = || self.items.last().map_or(0, |last| last.item + 1);
        self.of(piece).map_or_else(behind, |of| of.item)
    }

    /// Returns the range of elements of a piece within its item.
    pub fn range(&self, piece: usize) -> Range<u64> {
        self.of(piece).map_or(0..0, |of| {
            let start = |at: usize| (at as u64).saturating_mul(of.size).min(of.numel);
            start(piece - of.first)..start(piece - of.first + 1)
        })
    }

    fn of(&self, piece: usize) -> Option<&ItemPieces> {
        let after = self.items.partition_point(|item| item.first <= piece);
        after.checked_sub(1).map(|at| &self.items[at]).filter(|_| piece < self.count)
    }

    /// Merges the results of the pieces of an item. Returns the complete result with the last
    /// piece, or the first error.
    pub fn join<T>(
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

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(of: &Pieces) -> Vec<(usize, Range<u64>)> {
        (0..of.count()).map(|piece| (of.item(piece), of.range(piece))).collect()
    }

    #[test]
    fn splits_items_at_multiples_of_the_grain() {
        let mut pieces = Pieces::default();
        pieces.push(0, 10, Some(3), 7);
        pieces.push(1, 0, Some(1), 4);
        pieces.push(2, 9, None, 4);
        let expected = [(0, 0..6), (0, 6..10), (1, 0..0), (2, 0..9)];
        assert_eq!(ranges(&pieces), expected);
        assert_eq!((pieces.item(4), pieces.range(4)), (3, 0..0));
    }

    #[test]
    fn joins_results_and_reports_the_first_error() {
        let mut pieces = Pieces::default();
        pieces.push(0, 3, Some(1), 1);
        pieces.push(1, 1, None, 1);
        let join = |found: [Result<u32>; 4]| {
            let mut begun = None;
            let joined = found.into_iter().enumerate().filter_map(|(piece, found)| {
                pieces.join(piece, &mut begun, found, |all, next| *all = *all * 10 + next)
            });
            joined.map(|joined| joined.map_err(|error| error.to_string())).collect::<Vec<_>>()
        };
        assert_eq!(join([Ok(1), Ok(2), Ok(3), Ok(4)]), [Ok(123), Ok(4)]);
        let bad = |what: &str| Err(statelens_checkpoint::Error::damaged(what));
        let joined = join([Ok(1), bad("second"), bad("third"), Ok(4)]);
        assert!(joined[0].as_ref().is_err_and(|error| error.contains("second")), "{joined:?}");
        assert_eq!(joined[1..], [Ok(4)]);
        let joined = join([bad("first"), Ok(2), Ok(3), Ok(4)]);
        assert!(joined[0].as_ref().is_err_and(|error| error.contains("first")), "{joined:?}");
    }

    #[test]
    fn huge_items_have_a_bounded_number_of_pieces() {
        let mut pieces = Pieces::default();
        for (item, numel) in [1 << 40, u64::MAX].into_iter().enumerate() {
            pieces.push(item, numel, Some(1000), 4 << 20);
        }
        assert!(pieces.count() <= 2 * MAX_PIECES as usize, "{}", pieces.count());
        let ranges = ranges(&pieces);
        for (one, next) in ranges.iter().zip(&ranges[1..]) {
            assert!(one.0 < next.0 && next.1.start == 0 || one.1.end == next.1.start);
            assert_eq!(next.1.start % 1000, 0);
        }
        assert_eq!(ranges.last().map(|last| last.1.end), Some(u64::MAX));
    }
}
