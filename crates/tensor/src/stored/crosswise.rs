//! Reads views whose elements are stored in another order than the one requested.
//!
//! The result is produced in *bands* that fit in memory. A band is read directly from the storage
//! if that costs little more than its own bytes: rows of a matrix, columns of a wide one. It may
//! cost much more, as for a transposed matrix of which a band takes a few elements from each row.
//! Then, if there is scratch, the storage is read once, in *slabs* that fit in memory. The elements
//! of a slab are reordered so that the part that a band needs from it is contiguous; the slabs are
//! written to scratch, and bands are assembled from there. A stream, which can't seek, is also read
//! once; only if slabs overlap in it, it is unpacked into scratch first.

use std::ops::Range;
use std::sync::Arc;

use statelens_checkpoint::{self as checkpoint, Area, Error, Result};

use super::staged::Staged;
use super::strided::{Storage, Strided};
use super::sweep::Sweep;
use super::tiles::{Grid, Tiles};
use super::{Context, LayoutMachine};
use crate::bands::{Band, Bands};
use crate::runs::Runs;
use crate::shape::count;
use crate::view::{View, check_view};

/// Maximum number of passes over a stream before it is unpacked into scratch instead.
const MAX_PASSES: u64 = 2;

/// Creates the machine for the elements `range` of a view of `shape`.
pub(crate) fn start(
    context: &Context<'_>,
    shape: &[u64],
    view: &checkpoint::Strided,
    range: Range<u64>,
) -> Result<LayoutMachine> {
    check_view(view, shape, context.itemsize)?;
    let storage = Storage::Layout(view.storage.clone(), view.storage_len);
    // Reports errors in the storage now rather than in the first step.
    storage.open(context, 0..view.storage_len)?;
    plan(context, View::new(shape, view), storage, range)
}

fn plan(
    context: &Context<'_>,
    view: View,
    storage: Storage,
    range: Range<u64>,
) -> Result<LayoutMachine> {
    let itemsize = context.itemsize;
    let max = context.budget as u64 / itemsize.max(1);
    let numel = count(&view.shape)?;
    let wanted = range.end - range.start;
    let whole = Bands::new(&view.shape, 0..numel, max)?.next();
    let Some(band) = whole.filter(|band| band.count < wanted) else {
        return direct(context, view, storage, range);
    };
    let bands = wanted.div_ceil(band.count);
    let wanted = wanted.saturating_mul(itemsize);
    let Some(gap) = storage.gap() else {
        let (first, last) = view.extent();
        let bytes = (last + 1 - first).saturating_mul(itemsize);
        if bands <= MAX_PASSES {
            return direct(context, view, storage, range);
        }
        let Some(scratch) = context.files.scratch() else {
            context.bearable(bands, bytes.saturating_mul(bands), wanted)?;
            return direct(context, view, storage, range);
        };
        let stream = storage.open(context, first * itemsize..(last + 1) * itemsize)?;
        let once = unrepeated(&view);
        if once.is_nested() {
            let slabs = Slabs::new(&once, max)?;
            let boxes = Box::new(slabs.clone());
            let sweep = Sweep::new(once.clone(), itemsize, stream, first, boxes);
            return ordered(
                context,
                &view,
                &once,
                &slabs,
                LayoutMachine::Sweep(Box::new(sweep)),
                range,
            );
        }
        let area = scratch.area(bytes)?;
        let view = View { offset: view.offset - first, ..view };
        let next = plan(context, view, Storage::Area(area.clone()), range)?;
        return Ok(Staged::before(stream, area, next));
    };
    let each = Runs::new(&view, &band, itemsize, Some(gap)).cost;
    let work = each.saturating_mul(bands);
    // For a part of the view, all slabs would be read for a few elements each.
    let part = range.end - range.start < numel / 2;
    if part || gap == 0 || context.files.scratch().is_none() {
        if gap > 0 {
            context.bearable(bands, work, wanted)?;
        }
        return direct(context, view, storage, range);
    }
    // Repeated elements are reordered only once.
    let once = unrepeated(&view);
    let slabs = Slabs::new(&once, max)?;
    let bytes = count(&once.shape)?.saturating_mul(itemsize);
    let through = slabs.first().map_or(0, |slab| {
        Runs::new(&once, &slab, itemsize, Some(gap)).cost.saturating_mul(slabs.total)
    });
    // Each byte is written to scratch and read from there.
    if work <= through.saturating_add(bytes.saturating_mul(2)) {
        return direct(context, view, storage, range);
    }
    let boxes = Box::new(slabs.clone());
    let fill = Strided::new(context, once.clone(), storage, boxes);
    ordered(context, &view, &once, &slabs, LayoutMachine::Strided(Box::new(fill)), range)
}

/// Writes the slabs that `fill` passes on to scratch, and assembles bands from them.
fn ordered(
    context: &Context<'_>,
    view: &View,
    once: &View,
    slabs: &Slabs,
    fill: LayoutMachine,
    range: Range<u64>,
) -> Result<LayoutMachine> {
    let Some(scratch) = context.files.scratch() else {
        return Err(Error::io("there is no scratch space"));
    };
    let numel = count(&once.shape)?;
    let area = scratch.area(numel.saturating_mul(context.itemsize))?;
    if once.shape.len() == view.shape.len() {
        let next = tiles(context, once, slabs, area.clone(), range)?;
        return Ok(Staged::before(fill, area, next));
    }
    // First each element once, in order; then repeated as in the view.
    let dense = scratch.area(numel.saturating_mul(context.itemsize))?;
    let next = tiles(context, once, slabs, area.clone(), 0..numel)?;
    let once = Staged::before(fill, area, next);
    let next = direct(context, repeated(view), Storage::Area(dense.clone()), range)?;
    Ok(Staged::before(once, dense, next))
}

fn direct(
    context: &Context<'_>,
    view: View,
    storage: Storage,
    range: Range<u64>,
) -> Result<LayoutMachine> {
    let max = context.budget as u64 / context.itemsize.max(1);
    let bands = Box::new(Bands::new(&view.shape, range, max)?);
    Ok(LayoutMachine::Strided(Box::new(Strided::new(context, view, storage, bands))))
}

/// Creates the machine that assembles bands from the slabs.
fn tiles(
    context: &Context<'_>,
    view: &View,
    slabs: &Slabs,
    area: Arc<dyn Area>,
    range: Range<u64>,
) -> Result<LayoutMachine> {
    let mut places = Vec::with_capacity(slabs.total as usize);
    let mut at = 0;
    for slab in slabs.clone() {
        places.push((slabs.number(&slab), at));
        at += slab.count * context.itemsize;
    }
    let grid = Grid::clipped(&view.shape, &slabs.slab, places);
    Ok(LayoutMachine::Tiles(Box::new(Tiles::new(context, grid, area, &[], range)?)))
}

/// Returns the view without the dimensions that repeat the same elements.
fn unrepeated(view: &View) -> View {
    let kept = || view.strides.iter().zip(&view.shape).filter(|(stride, _)| **stride != 0);
    View {
        shape: kept().map(|(_, len)| *len).collect(),
        strides: kept().map(|(stride, _)| *stride).collect(),
        offset: view.offset,
    }
}

/// Returns the same view of a dense, ordered storage that holds each of its elements once.
fn repeated(view: &View) -> View {
    let mut strides = vec![0; view.shape.len()];
    let mut step = 1;
    for dim in (0..view.shape.len()).rev() {
        if view.strides[dim] != 0 {
            strides[dim] = step as i64;
            step *= view.shape[dim];
        }
    }
    View { shape: view.shape.clone(), strides, offset: 0 }
}

/// Boxes of a view whose elements are close together in the storage, in the order of the storage.
#[derive(Debug, Clone)]
struct Slabs {
    shape: Vec<u64>,
    /// Shape of a slab; those at the far edges are smaller.
    slab: Vec<u64>,
    grid: Vec<u64>,
    /// Dimensions by descending stride.
    order: Vec<usize>,
    /// Whether the stride of a dimension is negative.
    backwards: Vec<bool>,
    next: u64,
    total: u64,
}

impl Slabs {
    /// Creates slabs of at most `max` elements (at least 1).
    fn new(view: &View, max: u64) -> Result<Self> {
        let mut order: Vec<usize> = (0..view.shape.len()).collect();
        order.sort_by_key(|dim| std::cmp::Reverse(view.strides[*dim].unsigned_abs()));
        let mut slab = vec![1; view.shape.len()];
        let mut room = max.max(1);
        for dim in order.iter().rev() {
            let len = view.shape[*dim];
            // Lengths are balanced, so that the last slab isn't much smaller.
            slab[*dim] = len.div_ceil(len.div_ceil(len.min(room)));
            room /= slab[*dim];
            if slab[*dim] < len || room == 0 {
                break;
            }
        }
        let grid: Vec<u64> =
            view.shape.iter().zip(&slab).map(|(len, slab)| len.div_ceil(*slab)).collect();
        let total = count(&grid)?;
        let backwards = view.strides.iter().map(|stride| *stride < 0).collect();
        Ok(Self { shape: view.shape.clone(), slab, grid, order, backwards, next: 0, total })
    }

    fn first(&self) -> Option<Band> {
        self.clone().next()
    }

    /// Returns the position of a slab in C order.
    fn number(&self, slab: &Band) -> u64 {
        let cell = slab.start.iter().zip(&self.slab).map(|(start, slab)| start / slab);
        cell.zip(&self.grid).fold(0, |at, (cell, count)| at * count + cell)
    }
}

impl Iterator for Slabs {
    type Item = Band;

    fn next(&mut self) -> Option<Band> {
        if self.next == self.total {
            return None;
        }
        let mut rest = self.next;
        self.next += 1;
        let mut start = vec![0; self.shape.len()];
        let mut shape = self.slab.clone();
        for dim in self.order.iter().rev().copied() {
            let mut cell = rest % self.grid[dim];
            if self.backwards[dim] {
                cell = self.grid[dim] - 1 - cell;
            }
            start[dim] = cell * self.slab[dim];
            shape[dim] = self.slab[dim].min(self.shape[dim] - start[dim]);
            rest /= self.grid[dim];
        }
        let count = shape.iter().product();
        Some(Band { start, shape, count })
    }
}
