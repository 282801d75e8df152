//! Plans which runs of a storage to read for a box of a view.

use statelens_checkpoint::order;

use crate::bands::Band;
use crate::scatter::{BandAxis, Scatter, reach};
use crate::view::View;

/// The contiguous runs of the storage that cover a box, in ascending order.
#[derive(Debug)]
pub(crate) struct Runs {
    outer: Vec<BandAxis>,
    index: Vec<u64>,
    inner: Scatter,
    /// Length of a run in elements, from its first to its last.
    pub(crate) len: u64,
    pub(crate) done: bool,
    /// Total cost, in bytes that could be read in the same time.
    pub(crate) cost: u64,
}

impl Runs {
    /// Plans the runs. Reads elements that aren't needed if that is cheaper than starting another
    /// read after them, which costs as much as reading `gap` bytes. Without a gap everything is
    /// read, from the first element to the last.
    pub(crate) fn new(view: &View, band: &Band, itemsize: u64, gap: Option<u64>) -> Self {
        let mut whole = Scatter { axes: Vec::new(), storage: 0, band: 0 };
        // All sums are positions of elements, which were checked to lie in the storage.
        let mut storage = i128::from(view.offset);
        let mut step = 1;
        for dim in (0..band.shape.len()).rev() {
            let (start, len, stride) = (band.start[dim], band.shape[dim], view.strides[dim]);
            storage += i128::from(start) * i128::from(stride);
            if len > 1 {
                let mut axis = BandAxis { len, storage: stride.unsigned_abs(), band: step };
                if stride < 0 {
                    storage += i128::from(len - 1) * i128::from(stride);
                    whole.band += (len - 1) as i64 * step;
                    axis.band = -step;
                }
                whole.axes.push(axis);
            }
            step *= len as i64;
        }
        whole.storage = storage as u64;
        order::by_key(&mut whole.axes, |axis| {
            std::cmp::Reverse((axis.storage, axis.band.unsigned_abs()))
        });
        whole.join();
        let bytes = |axes: &[BandAxis]| (reach(axes) + 1).saturating_mul(itemsize);
        let (mut best, mut cost) = (0, bytes(&whole.axes).saturating_add(gap.unwrap_or(0)));
        let mut runs = 1u64;
        for (cut, axis) in whole.axes.iter().enumerate() {
            let Some(gap) = gap.filter(|_| axis.storage > 0) else { break };
            runs = runs.saturating_mul(axis.len);
            let each = bytes(&whole.axes[cut + 1..]).saturating_add(gap);
            if runs.saturating_mul(each) < cost {
                (best, cost) = (cut + 1, runs.saturating_mul(each));
            }
        }
        let outer: Vec<BandAxis> = whole.axes.drain(..best).collect();
        let len = reach(&whole.axes) + 1;
        Self { index: vec![0; outer.len()], outer, inner: whole, len, done: false, cost }
    }

    pub(crate) fn next(&mut self) -> Option<Scatter> {
        if self.done {
            return None;
        }
        let mut run = self.inner.clone();
        for (axis, index) in self.outer.iter().zip(&self.index) {
            run.storage += axis.storage * index;
            run.band += axis.band * *index as i64;
        }
        self.done = true;
        for (axis, index) in self.outer.iter().zip(&mut self.index).rev() {
            *index += 1;
            if *index < axis.len {
                self.done = false;
                break;
            }
            *index = 0;
        }
        Some(run)
    }
}
