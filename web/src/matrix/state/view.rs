//! Selects a matrix of a tensor: two of its dimensions are rows and columns, and every other
//! dimension has an index; a dimension may be restricted to a part.

use statelens_checkpoint::{Error, Result};
use statelens_tensor::{Axis, Slice};

use crate::protocol::selection::MatrixSelection;

/// Longer vectors are folded into rows.
const MAX_UNFOLDED: u64 = 512;

/// A matrix of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatrixView {
    pub shape: Vec<u64>,
    /// The dimension of rows, if at least two are drawn, and the dimension of columns, which is the
    /// later one.
    pub rows: Option<usize>,
    /// See `rows`.
    pub columns: Option<usize>,
    dims: Vec<ViewedDim>,
}

/// The selected part of a dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ViewedDim {
    /// The first index, the number of indices, and the step between them.
    first: u64,
    count: u64,
    step: i64,
    /// If the dimension is not drawn, the position within the part.
    at: u64,
    /// Whether the requested slice keeps the dimension.
    kept: bool,
}

impl ViewedDim {
    fn whole(count: u64, at: u64, kept: bool) -> Self {
        Self { first: 0, count, step: 1, at, kept }
    }

    /// Returns the index in the tensor of a position within the part.
    fn index(&self, at: u64) -> u64 {
        let moved = i128::from(self.first) + i128::from(at) * i128::from(self.step);
        u64::try_from(moved).unwrap_or(0)
    }

    /// Returns the position within the part of an index in the tensor.
    fn place(&self, index: u64) -> Option<u64> {
        let (moved, step) = (i128::from(index) - i128::from(self.first), i128::from(self.step));
        let at = u64::try_from(moved / step).ok().filter(|_| moved % step == 0)?;
        (at < self.count).then_some(at)
    }

    /// Returns the part in Python's notation.
    fn range(&self, dim: u64) -> Axis {
        let signed = |index: u64| i64::try_from(index).ok();
        let last = self.index(self.count.saturating_sub(1));
        if (self.first, self.count, self.step) == (0, dim, 1) {
            return Axis::Range { start: None, stop: None, step: 1 };
        }
        // A descending range down to index 0 has no stop.
        let stop =
            if self.step > 0 { signed(last + 1) } else { last.checked_sub(1).and_then(signed) };
        Axis::Range { start: signed(self.first), stop, step: self.step }
    }
}

impl MatrixView {
    /// Selects the last two dimensions, at index 0 of the others.
    pub fn new(shape: &[u64]) -> Self {
        let (columns, rows) = (shape.len().checked_sub(1), shape.len().checked_sub(2));
        let is_drawn = |dim: usize| Some(dim) == columns || Some(dim) == rows;
        let dims = (0..).zip(shape).map(|(at, len)| ViewedDim::whole(*len, 0, is_drawn(at)));
        Self { shape: shape.to_vec(), rows, columns, dims: dims.collect() }
    }

    /// Selects a slice of a tensor: of the dimensions that it keeps, the last two are drawn.
    ///
    /// # Errors
    /// If the slice does not fit the tensor, or has no values.
    pub fn of(shape: &[u64], slice: &Slice) -> Result<Self> {
        let taken = slice.taken(shape)?;
        if taken.iter().any(|axis| axis.count == 0) {
            return Err(Error::refused(
                "This slice has no values: it selects nothing along one dimension.",
            ));
        }
        let mut kept = (0..shape.len()).rev().filter(|dim| taken[*dim].kept);
        let (columns, rows) = (kept.next(), kept.next());
        let dims = taken.iter().zip(shape).map(|(axis, len)| match axis.kept {
            true => {
                let (first, count, step) = (axis.first, axis.count, axis.step);
                ViewedDim { first, count, step, at: 0, kept: true }
            }
            false => ViewedDim::whole(*len, axis.first, false),
        });
        Ok(Self { shape: shape.to_vec(), rows, columns, dims: dims.collect() })
    }

    /// Returns the selection that is sent to the worker.
    pub fn selection(&self, row: u32) -> MatrixSelection {
        let fold = match self.rows {
            None if self.elements() > MAX_UNFOLDED => {
                Some((self.elements().isqrt() * 2).next_power_of_two())
            }
            _ => None,
        };
        MatrixSelection { row, slice: text(&self.drawn(), &self.shape), fold }
    }

    /// Returns the numbers of rows and columns, as the worker computes them.
    pub fn size(&self, fold: Option<u64>) -> (u64, u64) {
        match fold {
            Some(columns) => (self.elements().div_ceil(columns.max(1)), columns),
            None => (self.len(self.rows), self.len(self.columns)),
        }
    }

    /// Returns the number of values.
    pub fn elements(&self) -> u64 {
        self.len(self.rows).saturating_mul(self.len(self.columns))
    }

    fn len(&self, dim: Option<usize>) -> u64 {
        dim.map_or(1, |dim| self.dims[dim].count)
    }

    /// Returns the slice that is drawn.
    pub fn drawn(&self) -> Slice {
        self.slice(|view, dim| view.is_drawn(dim))
    }

    /// Returns the requested slice, which may keep more dimensions than are drawn.
    pub fn requested(&self) -> Slice {
        self.slice(|view, dim| view.is_drawn(dim) || view.dims[dim].kept)
    }

    fn slice(&self, ranged: impl Fn(&Self, usize) -> bool) -> Slice {
        let axis = |(dim, part): (usize, &ViewedDim)| match ranged(self, dim) {
            true => part.range(self.shape[dim]),
            false => Axis::Index(i64::try_from(part.index(part.at)).unwrap_or(0)),
        };
        Slice::new(self.dims.iter().enumerate().map(axis))
    }

    /// Returns the index in the tensor of a row of the matrix.
    pub fn row_index(&self, row: u64) -> u64 {
        self.rows.map_or(row, |dim| self.dims[dim].index(row))
    }

    /// Returns the index in the tensor of a column of the matrix.
    pub fn column_index(&self, column: u64) -> u64 {
        self.columns.map_or(column, |dim| self.dims[dim].index(column))
    }

    /// Returns whether a dimension is rows or columns.
    pub fn is_drawn(&self, dim: usize) -> bool {
        Some(dim) == self.rows || Some(dim) == self.columns
    }

    /// Returns whether the last two dimensions are drawn in full.
    pub fn is_usual(&self) -> bool {
        let usual = Self::new(&self.shape);
        let is_whole = |dim: &usize| self.dims[*dim].count == self.shape[*dim];
        (self.rows, self.columns) == (usual.rows, usual.columns)
            && self.rows.iter().chain(&self.columns).all(is_whole)
    }

    /// Returns the drawn index of a dimension as its position within the part, the size of the
    /// part, and the index in the tensor.
    pub fn at(&self, dim: usize) -> (u64, u64, u64) {
        let part = &self.dims[dim];
        (part.at, part.count, part.index(part.at))
    }

    /// Draws another index of a dimension, given as position within the part.
    pub fn set(&mut self, dim: usize, at: u64) {
        let part = &mut self.dims[dim];
        part.at = at.min(part.count.saturating_sub(1));
    }

    /// Returns the position within the part that is nearest to an index in the tensor.
    pub fn nearest(&self, dim: usize, index: u64) -> u64 {
        let part = &self.dims[dim];
        let moved = i128::from(index) - i128::from(part.first);
        let at = u64::try_from(moved / i128::from(part.step)).unwrap_or(0);
        at.min(part.count.saturating_sub(1))
    }

    /// Draws two dimensions; the others are drawn at an index.
    pub fn draw(&mut self, one: usize, other: usize) {
        (self.rows, self.columns) = (Some(one.min(other)), Some(one.max(other)));
        for dim in 0..self.dims.len() {
            self.dims[dim].kept = self.is_drawn(dim);
        }
    }

    /// Draws the last two dimensions at an index of the preceding ones.
    pub fn lead(&mut self, index: &[u64]) {
        for (dim, index) in index.iter().enumerate() {
            self.set(dim, *index);
        }
    }

    /// Returns the indices of the dimensions before the last two.
    pub fn leading(&self) -> Vec<u64> {
        let before = &self.dims[..self.dims.len().saturating_sub(2)];
        before.iter().map(|part| part.index(part.at)).collect()
    }

    /// Returns the number in the tensor of a value of the matrix.
    pub fn number(&self, (row, column): (u64, u64), fold: Option<u64>) -> u64 {
        let at = match fold {
            Some(columns) => (0, row.saturating_mul(columns).saturating_add(column)),
            None => (row, column),
        };
        self.dims.iter().zip(&self.shape).enumerate().fold(0u64, |number, (dim, (part, len))| {
            let at = match Some(dim) {
                dim if dim == self.columns => at.1,
                dim if dim == self.rows => at.0,
                _ => part.at,
            };
            number.saturating_mul(*len).saturating_add(part.index(at))
        })
    }

    /// Draws the matrix that holds a value, given by its number in the tensor, and returns its
    /// position. The requested slice is widened as little as possible.
    pub fn go(&mut self, number: u64) -> (u64, u64) {
        let (mut row, mut column) = (0, 0);
        let index = statelens_values::index(&self.shape, number);
        for (dim, index) in index.into_iter().enumerate() {
            let part = &mut self.dims[dim];
            let at = part.place(index).unwrap_or_else(|| {
                *part = ViewedDim::whole(self.shape[dim], 0, part.kept);
                index
            });
            match Some(dim) {
                dim if dim == self.columns => column = at,
                dim if dim == self.rows => row = at,
                _ => self.dims[dim].at = at,
            }
        }
        (row, column)
    }
}

/// Formats a slice; empty for the whole tensor.
pub fn text(slice: &Slice, shape: &[u64]) -> String {
    let whole = Axis::Range { start: None, stop: None, step: 1 };
    if *slice == Slice::new(shape.iter().map(|_| whole)) {
        String::new()
    } else {
        slice.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(text: &str, shape: &[u64]) -> MatrixView {
        MatrixView::of(shape, &text.parse().unwrap()).unwrap()
    }

    #[test]
    fn slice_draws_two_dimensions() {
        let shape = [2, 3, 10, 20];
        let mut all = MatrixView::new(&shape);
        assert_eq!(all.drawn().to_string(), "0, 0, :, :");
        assert_eq!((all.size(None), all.is_usual()), ((10, 20), true));
        assert_eq!(all.go(200 * 4 + 20 * 3 + 5), (3, 5));
        assert_eq!((all.leading(), all.number((3, 5), None)), (vec![1, 1], 865));
        let mut some = view("0, :, 3, 2:8:2", &shape);
        assert_eq!((some.rows, some.columns, some.size(None)), (Some(1), Some(3), (3, 3)));
        assert_eq!((some.drawn(), some.is_usual()), (some.requested(), false));
        assert_eq!(some.drawn().to_string(), "0, :, 3, 2:7:2");
        assert_eq!(some.number((2, 1), None), (2 * 10 + 3) * 20 + 4);
        assert_eq!((some.row_index(2), some.column_index(1)), (2, 4));
        // A value within the slice keeps it; one outside makes the dimension whole.
        assert_eq!(some.go((2 * 10 + 9) * 20 + 4), (2, 1));
        assert_eq!(some.drawn().to_string(), "0, :, 9, 2:7:2");
        assert_eq!(some.go(200 + 5), (1, 5));
        assert_eq!(some.drawn().to_string(), "0, :, 0, :");
        some.draw(2, 0);
        assert_eq!((some.rows, some.columns), (Some(0), Some(2)));
        assert_eq!(some.drawn().to_string(), ":, 0, :, 0");
    }

    #[test]
    fn requested_slice_may_keep_more_dimensions() {
        let mut more = view("0:2, ::-1, :, -4:", &[2, 3, 10, 20]);
        assert_eq!(more.requested().to_string(), ":, 2::-1, :, 16:20");
        assert_eq!(more.drawn().to_string(), "0, 2, :, 16:20");
        more.set(1, 2);
        assert_eq!((more.at(1), more.nearest(1, 2)), ((2, 3, 0), 0));
        assert_eq!(more.drawn().to_string(), "0, 0, :, 16:20");
        assert_eq!(more.requested().to_string(), ":, 2::-1, :, 16:20");
    }

    #[test]
    fn long_vectors_are_folded() {
        let long = view(":, 1", &[3_000, 4]);
        let fold = long.selection(7).fold;
        assert_eq!((fold, long.size(fold)), (Some(128), (24, 128)));
        assert_eq!(long.number((1, 2), fold), (128 + 2) * 4 + 1);
        let short = view("1", &[3, 4]);
        assert_eq!((short.selection(7).fold, short.size(None)), (None, (1, 4)));
        assert_eq!(short.selection(7).slice, "1, :");
        assert_eq!(MatrixView::new(&[3, 4]).selection(7).slice, "");
        assert!(MatrixView::of(&[3], &"3:".parse().unwrap()).is_err());
    }
}
