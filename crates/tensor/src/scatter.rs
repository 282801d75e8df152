//! Copies the elements of a stored run to their places in a band.

use std::ops::Range;

/// One dimension of a band, of at least two elements; strides in elements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BandAxis {
    pub(crate) len: u64,
    /// Never negative: dimensions with negative strides are reversed.
    pub(crate) storage: u64,
    /// Negative if the dimension was reversed.
    pub(crate) band: i64,
}

/// A part of a band: axes with descending strides, and the position of its first element.
#[derive(Debug, Clone)]
pub(crate) struct Scatter {
    pub(crate) axes: Vec<BandAxis>,
    pub(crate) storage: u64,
    pub(crate) band: i64,
}

impl Scatter {
    /// Merges neighbouring axes that are contiguous in both storage and band.
    pub(crate) fn join(&mut self) {
        let mut joined: Vec<BandAxis> = Vec::with_capacity(self.axes.len());
        for axis in self.axes.drain(..) {
            match joined.last_mut() {
                Some(outer)
                    if axis.storage.checked_mul(axis.len) == Some(outer.storage)
                        && axis.band.checked_mul(axis.len as i64) == Some(outer.band) =>
                {
                    *outer = BandAxis { len: outer.len * axis.len, ..axis };
                }
                _ => joined.push(axis),
            }
        }
        self.axes = joined;
    }

    /// Copies the elements in `piece` to their places; `at` is the position of its first element in
    /// the storage.
    pub(crate) fn put(&self, at: u64, piece: &[u8], size: usize, band: &mut [u8]) {
        let end = at + (piece.len() / size) as u64;
        match size {
            1 => put::<1>(self, at, end, piece, size, band),
            2 => put::<2>(self, at, end, piece, size, band),
            4 => put::<4>(self, at, end, piece, size, band),
            8 => put::<8>(self, at, end, piece, size, band),
            _ => put::<0>(self, at, end, piece, size, band),
        }
    }
}

/// Copies the elements `at..end` of the storage to their places in the band. `SIZE` is the size of
/// an element, or 0 if only known as `size`. Walks the axes with a stack of index ranges: only
/// indices whose elements can be in the piece are visited.
fn put<const SIZE: usize>(
    part: &Scatter,
    at: u64,
    end: u64,
    piece: &[u8],
    size: usize,
    band: &mut [u8],
) {
    let size = if SIZE > 0 { SIZE } else { size };
    let Some((last, outer)) = part.axes.split_last() else {
        if (at..end).contains(&part.storage) {
            let from = (part.storage - at) as usize * size;
            let to = part.band as usize * size;
            band[to..to + size].copy_from_slice(&piece[from..from + size]);
        }
        return;
    };
    let reaches: Vec<u64> = (0..part.axes.len()).map(|dim| reach(&part.axes[dim + 1..])).collect();
    // For each outer axis that is entered: the remaining indices, and the positions of its first
    // element.
    let mut stack: Vec<(Range<u64>, u64, i64)> = Vec::with_capacity(outer.len());
    let (mut storage, mut place) = (part.storage, part.band);
    loop {
        if stack.len() < outer.len() {
            let dim = stack.len();
            stack.push((indices(&outer[dim], storage, reaches[dim], at, end), storage, place));
        } else {
            let range = indices(last, storage, 0, at, end);
            let from = (storage + range.start * last.storage).wrapping_sub(at) as usize;
            let to = place + range.start as i64 * last.band;
            let count = range.end.saturating_sub(range.start) as usize;
            if count > 0 {
                copy::<SIZE>(last, count, piece, from, band, to, size);
            }
        }
        // Advances to the next index of the innermost axis that has one left.
        loop {
            let Some(dim) = stack.len().checked_sub(1) else { return };
            let (range, first, first_place) = &mut stack[dim];
            if let Some(index) = range.next() {
                storage = *first + index * outer[dim].storage;
                place = *first_place + index as i64 * outer[dim].band;
                break;
            }
            stack.pop();
        }
    }
}

/// Copies `count` elements along one axis, from the element `from` of the piece to the element `to`
/// of the band.
fn copy<const SIZE: usize>(
    axis: &BandAxis,
    count: usize,
    piece: &[u8],
    from: usize,
    band: &mut [u8],
    to: i64,
    size: usize,
) {
    if axis.storage == 1 && axis.band == 1 {
        let (from, to, len) = (from * size, to as usize * size, count * size);
        band[to..to + len].copy_from_slice(&piece[from..from + len]);
        return;
    }
    // Wraps, since a step may exceed a `usize` if only one element is copied.
    let step = (axis.storage as usize).wrapping_mul(size);
    let (mut from, mut to) = (from * size, to * size as i64);
    for _ in 0..count {
        let place = to as usize;
        if SIZE > 0 {
            band[place..place + SIZE].copy_from_slice(&piece[from..from + SIZE]);
        } else {
            band[place..place + size].copy_from_slice(&piece[from..from + size]);
        }
        from = from.wrapping_add(step);
        to += axis.band * size as i64;
    }
}

/// Returns the indices of an axis whose elements can be in `at..end`, if its first element is
/// `storage` and the elements below each index extend `reach` further.
fn indices(axis: &BandAxis, storage: u64, reach: u64, at: u64, end: u64) -> Range<u64> {
    if axis.storage == 0 {
        let touches = storage < end && storage + reach >= at;
        return if touches { 0..axis.len } else { 0..0 };
    }
    let first = at.saturating_sub(storage + reach).div_ceil(axis.storage);
    let after = if end > storage { (end - 1 - storage) / axis.storage + 1 } else { 0 };
    let after = after.min(axis.len);
    first.min(after)..after
}

/// Returns the distance in elements from the first to the last.
pub(crate) fn reach(axes: &[BandAxis]) -> u64 {
    axes.iter().map(|axis| (axis.len - 1) * axis.storage).sum()
}
