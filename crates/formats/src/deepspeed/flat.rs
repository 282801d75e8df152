//! The flat tensors of all ranks.

use statelens_checkpoint::{Tensor, numel};

use crate::joined::FlatTensor;

/// The flat tensors of one rank, one after the other.
#[derive(Debug, Default)]
pub(super) struct RankFlat {
    /// Each with the number of elements before it.
    tensors: Vec<(u64, Tensor)>,
    pub(super) numel: u64,
}

impl RankFlat {
    /// Appends a tensor. Returns false unless it has one dimension and the same dtype as the others.
    pub(super) fn push(&mut self, tensor: &Tensor) -> bool {
        let same = self.tensors.first().is_none_or(|(_, first)| first.stored == tensor.stored);
        let plain = !tensor.conjugate && !tensor.negate && tensor.quantizer.is_none();
        let numel = numel(&tensor.shape).and_then(|numel| self.numel.checked_add(numel));
        let Some(numel) = numel.filter(|_| same && plain && tensor.shape.len() == 1) else {
            return false;
        };
        self.tensors.push((self.numel, tensor.clone()));
        self.numel = numel;
        true
    }

    pub(super) fn first(&self) -> Option<&Tensor> {
        self.tensors.first().map(|(_, tensor)| tensor)
    }

    /// Appends `len` elements from `start` on to `flat`. Returns false if they are not there.
    pub(super) fn add(&self, flat: &mut FlatTensor, start: u64, len: u64) -> bool {
        let Some(end) = start.checked_add(len).filter(|end| *end <= self.numel) else {
            return false;
        };
        for (before, tensor) in &self.tensors {
            let numel = numel(&tensor.shape).unwrap_or(0);
            let from = start.clamp(*before, before + numel) - before;
            let to = end.clamp(*before, before + numel) - before;
            if from < to && !flat.push(tensor, from, to - from) {
                return false;
            }
        }
        true
    }
}

/// The first missing rank of a tensor, and the tensor with its missing parts.
pub(super) type PartialFlat = (u64, FlatTensor);

/// The flat tensors of all ranks.
#[derive(Debug)]
pub(super) struct Flats {
    /// `None` for a rank whose file is missing.
    ranks: Vec<Option<RankFlat>>,
    /// The first element of each rank, one rank after the other, and the end.
    starts: Vec<u64>,
}

impl Flats {
    /// Creates the flat tensors of all ranks. Ranks have the same number of elements, except that
    /// the last one may lack its padding, so a missing rank counts as long as the longest.
    pub(super) fn new(ranks: Vec<Option<RankFlat>>) -> Self {
        let longest = ranks.iter().flatten().map(|flat| flat.numel).max().unwrap_or(0);
        let mut starts = vec![0u64];
        let mut end = 0u64;
        for flat in &ranks {
            end = end.saturating_add(flat.as_ref().map_or(longest, |flat| flat.numel));
            starts.push(end);
        }
        Self { ranks, starts }
    }

    /// Returns any of the tensors, for dtype and byte order.
    pub(super) fn first(&self) -> Option<&Tensor> {
        self.ranks.iter().flatten().find_map(RankFlat::first)
    }

    /// Returns the first element of a rank and the end, if its file is there.
    pub(super) fn range(&self, rank: usize) -> Option<(u64, u64)> {
        self.ranks.get(rank)?.as_ref()?;
        Some((*self.starts.get(rank)?, *self.starts.get(rank + 1)?))
    }

    /// Returns whether the files of all ranks are there.
    pub(super) fn are_complete(&self) -> bool {
        self.ranks.iter().all(Option::is_some)
    }

    /// Returns the number of elements of all ranks, as far as they are known.
    pub(super) fn numel(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Returns the elements from `start` on of all ranks one after the other. Fails with the
    /// missing rank, or `None` if there are not as many elements.
    pub(super) fn joined(&self, start: u64, len: u64) -> Result<FlatTensor, Option<PartialFlat>> {
        let end = start.checked_add(len).filter(|end| *end <= self.numel()).ok_or(None)?;
        let (mut flat, mut missing) = (FlatTensor::default(), None);
        let before = self.starts.partition_point(|first| *first <= start).saturating_sub(1);
        let ranges = self.starts.iter().zip(self.starts.iter().skip(1)).zip(&self.ranks);
        for (rank, ((first, after), of)) in (0u64..).zip(ranges).skip(before) {
            if *first >= end {
                break;
            }
            let (from, to) = (start.clamp(*first, *after), end.clamp(*first, *after));
            if from == to {
                continue;
            }
            let Some(of) = of else {
                missing.get_or_insert(rank);
                flat.push_missing(to - from);
                continue;
            };
            if !of.add(&mut flat, from - first, to - from) {
                return Err(None);
            }
        }
        match missing {
            Some(rank) => Err(Some((rank, flat))),
            None => Ok(flat),
        }
    }

    /// Returns `numel` elements of which each rank has `part` from `start` on. Fails as
    /// [`Flats::joined`].
    pub(super) fn interleaved(
        &self,
        start: u64,
        part: u64,
        numel: u64,
    ) -> Result<FlatTensor, Option<PartialFlat>> {
        let (mut flat, mut missing) = (FlatTensor::default(), None);
        let mut left = numel;
        for (rank, of) in (0u64..).zip(&self.ranks) {
            let take = left.min(part);
            if take == 0 {
                break;
            }
            left -= take;
            let Some(of) = of else {
                missing.get_or_insert(rank);
                flat.push_missing(take);
                continue;
            };
            if !of.add(&mut flat, start, take) {
                return Err(None);
            }
        }
        match missing {
            _ if left > 0 => Err(None),
            Some(rank) => Err(Some((rank, flat))),
            None => Ok(flat),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use statelens_checkpoint::{DType, Layout};

    fn rank(parts: &[&[u8]]) -> Option<RankFlat> {
        let mut flat = RankFlat::default();
        for part in parts {
            let layout = Layout::Inline((*part).into());
            assert!(flat.push(&Tensor::new(DType::U8, vec![part.len() as u64], layout)));
        }
        Some(flat)
    }

    #[test]
    fn joins_across_ranks_and_groups() {
        let flats = Flats::new(vec![rank(&[&[1, 2], &[3]]), rank(&[&[4, 5, 6]]), rank(&[&[7]])]);
        assert_eq!(flats.numel(), 7);
        assert!(flats.joined(1, 6).unwrap().layout(&[2, 3], 1).is_some());
        assert!(matches!(flats.joined(2, 6), Err(None)));
        assert!(flats.interleaved(0, 1, 3).unwrap().layout(&[3], 1).is_some());
        assert!(matches!(flats.interleaved(1, 2, 5), Err(None)));
        let gap = Flats::new(vec![rank(&[&[1, 2]]), None, rank(&[&[5]])]);
        assert!(matches!(gap.joined(1, 2), Err(Some((1, _)))));
        assert!(gap.joined(4, 1).is_ok());
        assert!(matches!(gap.interleaved(0, 1, 2), Err(Some((1, _)))));
    }
}
