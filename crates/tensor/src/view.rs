//! Views in a normal form, and checks of their extent.

use statelens_checkpoint::{self as checkpoint, Error, Layout, Result, Span};

use crate::shape::count;

/// A view in the form that matters for reading: dimensions of one index are omitted, and
/// neighbouring dimensions that can be traversed as one are merged. The elements in C order are the
/// same.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub(crate) shape: Vec<u64>,
    pub(crate) strides: Vec<i64>,
    pub(crate) offset: u64,
}

impl View {
    /// Creates the view. [`check_view`] must have accepted it.
    pub(crate) fn new(shape: &[u64], view: &checkpoint::Strided) -> Self {
        let mut this = Self { shape: Vec::new(), strides: Vec::new(), offset: view.offset };
        for (len, stride) in shape.iter().zip(&view.strides).filter(|(len, _)| **len != 1) {
            let span = i64::try_from(*len).ok().and_then(|len| stride.checked_mul(len));
            match (this.shape.last_mut(), this.strides.last_mut()) {
                (Some(outer), Some(step)) if span == Some(*step) => {
                    *outer *= len;
                    *step = *stride;
                }
                _ => {
                    this.shape.push(*len);
                    this.strides.push(*stride);
                }
            }
        }
        this
    }

    /// Returns whether boxes of the view follow each other in the storage: each stride is longer
    /// than the total extent of all dimensions with shorter strides.
    pub(crate) fn is_nested(&self) -> bool {
        let mut dims: Vec<(u64, u64)> = self
            .strides
            .iter()
            .map(|stride| stride.unsigned_abs())
            .zip(self.shape.clone())
            .collect();
        dims.sort_unstable();
        let mut reach = 0u64;
        dims.into_iter().all(|(stride, len)| {
            let apart = stride > reach;
            reach = reach.saturating_add((len - 1).saturating_mul(stride));
            apart
        })
    }

    /// Returns the first and last element in the storage. The view must have elements.
    pub(crate) fn extent(&self) -> (u64, u64) {
        let (mut low, mut high) = (i128::from(self.offset), i128::from(self.offset));
        for (len, stride) in self.shape.iter().zip(&self.strides) {
            let far = i128::from(len.saturating_sub(1)) * i128::from(*stride);
            if far < 0 { low += far } else { high += far }
        }
        // Both are elements of the storage, so they fit in 64 bits.
        (low as u64, high as u64)
    }
}

/// Fails unless every element of the view is in its storage.
pub(crate) fn check_view(view: &checkpoint::Strided, shape: &[u64], itemsize: u64) -> Result<()> {
    if view.strides.len() != shape.len() {
        return Err(Error::damaged(format!(
            "a view of {} dimensions has {} strides",
            shape.len(),
            view.strides.len()
        )));
    }
    if count(shape)? == 0 {
        return Ok(());
    }
    let outside = || {
        Error::damaged(format!(
            "a view of shape {shape:?}, strides {:?} and offset {} reaches out of its storage of \
             {} bytes",
            view.strides, view.offset, view.storage_len
        ))
    };
    let (mut low, mut high) = (i128::from(view.offset), i128::from(view.offset));
    for (dim, stride) in shape.iter().zip(&view.strides) {
        // At most 2^127: a dimension has less than 2^64 indices, a stride is less than 2^63
        // elements.
        let far = i128::from(dim - 1) * i128::from(*stride);
        let side = if far < 0 { &mut low } else { &mut high };
        *side = side.checked_add(far).ok_or_else(outside)?;
    }
    let end = high.checked_add(1).and_then(|high| high.checked_mul(i128::from(itemsize)));
    if low < 0 || end.is_none_or(|end| end > i128::from(view.storage_len)) {
        return Err(outside());
    }
    Ok(())
}

/// Returns the first byte of a view whose elements are contiguous in C order; `None` for other
/// views.
pub(crate) fn dense_start(view: &checkpoint::Strided, shape: &[u64], itemsize: u64) -> Option<u64> {
    if view.strides.len() != shape.len() {
        return None;
    }
    let mut step = 1u64;
    for (dim, stride) in shape.iter().zip(&view.strides).rev() {
        if *dim != 1 && u64::try_from(*stride) != Ok(step) {
            return None;
        }
        step = step.checked_mul(*dim)?;
    }
    view.offset.checked_mul(itemsize)
}

/// Returns the span of a file that a dense view covers, if its storage is a span.
pub(crate) fn dense_span(view: &checkpoint::Strided, shape: &[u64], itemsize: u64) -> Option<Span> {
    let Layout::Span(storage) = &*view.storage else { return None };
    let start = dense_start(view, shape, itemsize)?;
    let len = count(shape).ok()?.checked_mul(itemsize)?;
    let end = start.checked_add(len)?;
    let fits = end <= view.storage_len && end <= storage.len;
    let offset = storage.offset.checked_add(start)?;
    fits.then_some(Span { file: storage.file, offset, len })
}
