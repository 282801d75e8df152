//! Cuts a range of elements in C order into boxes that fit a buffer.

use std::ops::Range;

use statelens_checkpoint::Result;

use crate::shape::count;

/// A box of an array whose elements are contiguous in C order: single indices, then a range of one
/// dimension, then complete dimensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Band {
    pub(crate) start: Vec<u64>,
    /// Number of indices in each dimension.
    pub(crate) shape: Vec<u64>,
    pub(crate) count: u64,
}

pub(crate) struct Overlap {
    /// Its first index in the other box.
    pub(crate) from: Vec<u64>,
    /// Its first index in the band.
    pub(crate) to: Vec<u64>,
    pub(crate) shape: Vec<u64>,
}

impl Band {
    /// Returns the intersection with the box of `shape` that starts at `other`.
    pub(crate) fn within(&self, other: &[u64], shape: &[u64]) -> Overlap {
        let dims = 0..self.start.len();
        let start = |dim: usize| self.start[dim].max(other[dim]);
        let end = |dim: usize| (self.start[dim] + self.shape[dim]).min(other[dim] + shape[dim]);
        Overlap {
            from: dims.clone().map(|dim| start(dim) - other[dim]).collect(),
            to: dims.clone().map(|dim| start(dim) - self.start[dim]).collect(),
            shape: dims.map(|dim| end(dim) - start(dim)).collect(),
        }
    }
}

/// The boxes that make up a range of elements, in order.
#[derive(Debug)]
pub(crate) struct Bands {
    shape: Vec<u64>,
    /// Elements from one index to the next, for each dimension.
    steps: Vec<u64>,
    rest: Range<u64>,
    max: u64,
    /// Shape of the chunks; boxes should end at their borders.
    chunk: Option<Vec<u64>>,
}

impl Bands {
    /// Cuts `range` of an array of `shape` into boxes of at most `max` elements (at least 1).
    pub(crate) fn new(shape: &[u64], range: Range<u64>, max: u64) -> Result<Self> {
        count(shape)?;
        let mut steps = vec![1u64; shape.len()];
        for dim in (1..shape.len()).rev() {
            steps[dim - 1] = steps[dim].saturating_mul(shape[dim]);
        }
        Ok(Self { shape: shape.to_vec(), steps, rest: range, max: max.max(1), chunk: None })
    }

    /// Makes boxes end at the borders of chunks where possible. A box that is contiguous in one
    /// chunk may exceed the maximum, since it needs no buffer.
    pub(crate) fn with_chunks(mut self, chunk: &[u64]) -> Self {
        self.chunk = Some(chunk.to_vec());
        self
    }

    /// Returns whether a box that is a range in `dim` and complete in all later dimensions is in
    /// one chunk, if it does not cross a border in `dim`.
    fn one_chunk_below(&self, dim: usize) -> bool {
        let below = dim + 1..self.shape.len();
        self.chunk.as_ref().is_some_and(|chunk| {
            chunk[below.clone()].iter().zip(&self.shape[below]).all(|(chunk, dim)| chunk == dim)
        })
    }

    fn cut(&self, dim: usize, index: u64, left: u64) -> Option<u64> {
        let step = self.steps[dim];
        let one_chunk = self.one_chunk_below(dim);
        let max = if one_chunk { left } else { left.min(self.max) };
        let fit = (max / step).min(self.shape[dim] - index);
        if fit == 0 {
            return None;
        }
        let Some(chunk) = self.chunk.as_ref().map(|chunk| chunk[dim]) else { return Some(fit) };
        let to_border = chunk - index % chunk;
        if one_chunk {
            return Some(fit.min(to_border));
        }
        let end = index + fit;
        let at_border = end - end % chunk;
        Some(if end < self.shape[dim] && at_border > index { at_border - index } else { fit })
    }
}

impl Iterator for Bands {
    type Item = Band;

    fn next(&mut self) -> Option<Band> {
        if self.rest.is_empty() {
            return None;
        }
        let at = self.rest.start;
        let left = self.rest.end - at;
        let index = |dim: usize| (at / self.steps[dim]) % self.shape[dim];
        let start: Vec<u64> = (0..self.shape.len()).map(index).collect();
        let mut shape = vec![1; self.shape.len()];
        let mut count = 1;
        for dim in 0..self.shape.len() {
            if !at.is_multiple_of(self.steps[dim]) {
                continue;
            }
            if let Some(indices) = self.cut(dim, start[dim], left) {
                shape[dim] = indices;
                shape[dim + 1..].copy_from_slice(&self.shape[dim + 1..]);
                count = indices * self.steps[dim];
                break;
            }
        }
        self.rest.start += count;
        Some(Band { start, shape, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_cover_every_range_once_in_order() {
        for shape in [vec![], vec![7], vec![3, 4, 5], vec![2, 1, 3, 2], vec![1, 1, 6]] {
            let total: u64 = shape.iter().product();
            for start in 0..total {
                for end in start..=total {
                    for max in [1, 2, 5, 7, 1000] {
                        let mut at = start;
                        for band in Bands::new(&shape, start..end, max).unwrap() {
                            let mut linear = 0;
                            for ((from, len), dim) in band.start.iter().zip(&band.shape).zip(&shape)
                            {
                                assert!(from + len <= *dim && *len > 0);
                                linear = linear * dim + from;
                            }
                            assert_eq!(linear, at);
                            assert_eq!(band.count, band.shape.iter().product::<u64>());
                            assert!(band.count <= max);
                            at += band.count;
                        }
                        assert_eq!(at, end);
                    }
                }
            }
        }
    }

    #[test]
    fn bands_end_at_chunk_borders() {
        let bands = |max, chunk: &[u64]| -> Vec<(Vec<u64>, Vec<u64>)> {
            Bands::new(&[10, 6], 0..60, max)
                .unwrap()
                .with_chunks(chunk)
                .map(|band| (band.start, band.shape))
                .collect()
        };
        // 5 rows fit; chunks are 2 rows high, so 4 are taken.
        assert_eq!(bands(30, &[2, 4])[0], (vec![0, 0], vec![4, 6]));
        // A chunk is as wide as the array: one at a time, even if more would fit.
        assert_eq!(bands(60, &[4, 6])[2], (vec![8, 0], vec![2, 6]));
        assert_eq!(bands(1, &[4, 6])[0], (vec![0, 0], vec![4, 6]));
        // Less than a row fits: pieces of a row, each in one chunk.
        assert_eq!(bands(5, &[4, 4])[1], (vec![0, 4], vec![1, 2]));
    }
}
