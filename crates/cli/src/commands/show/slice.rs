//! Slices of tensors, written as in Python.

use std::sync::Arc;

use statelens::Taken;
use statelens_checkpoint::{FileSet, Layout, Result, Strided, Tensor};
use statelens_tensor::elements;

use super::EachElement;
use crate::print::Failure;

/// What of a tensor is to be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShownSlice {
    text: String,
    /// For each dimension of the tensor.
    axes: Vec<Taken>,
    /// Elements from one index of each dimension to the next.
    strides: Vec<u64>,
    /// The shape of what is taken: a number takes a dimension away.
    shape: Vec<u64>,
}

/// Bytes that are read at once, if what is asked for lies within.
const NEAR: u64 = 32 << 20;

impl ShownSlice {
    /// Understands what stands between the brackets, for a tensor of this shape.
    pub(crate) fn parse(text: &str, shape: &[u64]) -> Result<Self> {
        let axes = text.parse::<statelens::Slice>()?.taken(shape)?;
        let mut slice = Self {
            text: text.trim().to_owned(),
            strides: vec![1; shape.len()],
            shape: axes.iter().filter(|axis| axis.kept).map(|axis| axis.count).collect(),
            axes,
        };
        for at in (1..shape.len()).rev() {
            slice.strides[at - 1] = slice.strides[at].saturating_mul(shape[at]);
        }
        Ok(slice)
    }

    /// How it was written, without brackets.
    pub(crate) fn text(&self) -> String {
        self.text.clone()
    }

    /// The shape of what is taken.
    pub(crate) fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// How many elements it takes.
    pub(crate) fn len(&self) -> u64 {
        self.axes.iter().map(|axis| axis.count).fold(1, u64::saturating_mul)
    }

    /// The layout of what it takes of a tensor that lies as this one does, if that can be said: a view
    /// of the same storage.
    pub(crate) fn view(&self, tensor: &Tensor) -> Option<Layout> {
        let of = match &tensor.layout {
            Layout::Span(span) => Strided {
                storage: Arc::new(tensor.layout.clone()),
                storage_len: span.len,
                offset: 0,
                strides: self
                    .strides
                    .iter()
                    .map(|it| i64::try_from(*it).ok())
                    .collect::<Option<_>>()?,
            },
            Layout::Strided(of) => of.clone(),
            _ => return None,
        };
        let mut offset = i128::from(of.offset);
        let mut strides = Vec::new();
        for (axis, stride) in self.axes.iter().zip(&of.strides) {
            offset += i128::from(axis.first) * i128::from(*stride);
            if axis.kept {
                strides.push(axis.step.checked_mul(*stride)?);
            }
        }
        let offset = u64::try_from(offset).ok()?;
        (self.len() > 0).then_some(Layout::Strided(Strided { offset, strides, ..of }))
    }

    /// Passes the bytes of the first `most` elements on, in C order, with their numbers.
    pub(crate) fn each(
        &self,
        files: &FileSet,
        tensor: &Tensor,
        most: u64,
        out: EachElement<'_>,
    ) -> std::result::Result<(), Failure> {
        let item = tensor.dtype.itemsize().max(1);
        // What lies near to each other is read once: rows of a block, a column of a matrix.
        let mut near = (0, 0, Vec::new());
        for number in 0..most.min(self.len()) {
            let at = self.place(number);
            let (start, end, _) = &near;
            if at < *start || at >= *end {
                let (start, end) = self.run(number, most, NEAR / item);
                near = (start, end, elements(files, tensor, start..end)?);
            }
            let (start, _, bytes) = &near;
            let from = usize::try_from((at - start) * item).unwrap_or(usize::MAX);
            let element = bytes.get(from..from.saturating_add(item as usize)).unwrap_or_default();
            out(number, element)?;
        }
        Ok(())
    }

    /// The first elements from `number` on that lie within `room` of each other: from where to
    /// where they are.
    fn run(&self, number: u64, most: u64, room: u64) -> (u64, u64) {
        let first = self.place(number);
        let (mut start, mut end) = (first, first + 1);
        let rest = most.min(self.len());
        for number in number + 1..rest.min(number.saturating_add(MOST_AHEAD)) {
            let at = self.place(number);
            let (low, high) = (start.min(at), end.max(at + 1));
            if high - low > room.max(1) {
                break;
            }
            (start, end) = (low, high);
        }
        (start, end)
    }

    /// Where in the tensor, counted in C order, the element of this number is.
    fn place(&self, mut number: u64) -> u64 {
        let mut place = 0u64;
        for (axis, stride) in self.axes.iter().zip(&self.strides).rev() {
            let index = number % axis.count.max(1);
            number /= axis.count.max(1);
            let moved = i128::from(axis.first) + i128::from(index) * i128::from(axis.step);
            let moved = u64::try_from(moved).unwrap_or(0);
            place = place.saturating_add(moved.saturating_mul(*stride));
        }
        place
    }
}

/// Elements that are looked ahead for others that lie near.
const MOST_AHEAD: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn places(text: &str, shape: &[u64]) -> (Vec<u64>, Vec<u64>) {
        let slice = ShownSlice::parse(text, shape).unwrap();
        ((0..slice.len()).map(|number| slice.place(number)).collect(), slice.shape)
    }

    #[test]
    fn elements_are_found_in_the_order_of_the_slice() {
        for (text, shape, wanted, left) in [
            ("0:2, :2", &[3u64, 4][..], &[0u64, 1, 4, 5][..], &[2u64, 2][..]),
            ("..., -1", &[2, 2, 2], &[1, 3, 5, 7], &[2, 2]),
            ("3:0:-2", &[4], &[3, 1], &[2]),
            ("7:", &[5], &[], &[0]),
            ("0,0", &[1, 1], &[0], &[]),
        ] {
            assert_eq!(places(text, shape), (wanted.to_vec(), left.to_vec()), "[{text}] {shape:?}");
        }
    }
}
