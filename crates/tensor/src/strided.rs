//! Views of a storage with any strides.

use std::ops::Range;

use statelens_checkpoint::{self as checkpoint, Error, FileSet, Layout, Result, Span, order};

use crate::bands::{Band, Bands};
use crate::pieces::Elements;
use crate::stored::{Context, Stored, count};
use crate::{Need, Out};

/// Bytes of a storage that are read over rather than skipped: a further read costs more.
const GAP: u64 = 128 << 10;

/// Gathers a view band by band: the elements of a band are put in place as the storage passes,
/// in ascending order of its bytes.
#[derive(Debug)]
pub(crate) struct Strided {
    view: checkpoint::Strided,
    itemsize: u64,
    bands: Bands,
    band: Vec<u8>,
    /// What is still to be read for the band.
    runs: Option<Runs>,
    /// The run that is being read, and where it is in elements of the storage.
    run: Option<(Stored, Scatter, u64)>,
    elements: Elements,
    done: bool,
}

/// One dimension of a band, of at least two elements; strides in elements.
#[derive(Debug, Clone, Copy)]
struct Axis {
    len: u64,
    /// Never negative: a dimension that runs backwards is turned round.
    storage: u64,
    /// Negative where the dimension was turned round.
    band: i64,
}

/// A part of a band: axes with descending strides, and where its first element is.
#[derive(Debug, Clone)]
struct Scatter {
    axes: Vec<Axis>,
    storage: u64,
    band: i64,
}

/// The parts of a band that lie apart in the storage, in ascending order.
#[derive(Debug)]
struct Runs {
    outer: Vec<Axis>,
    index: Vec<u64>,
    inner: Scatter,
    /// Elements from the first of a run to after its last.
    len: u64,
    done: bool,
}

impl Strided {
    pub(crate) fn new(
        context: &Context<'_>,
        shape: &[u64],
        view: &checkpoint::Strided,
        range: Range<u64>,
    ) -> Result<Self> {
        check_view(view, shape, context.itemsize)?;
        let max = context.budget as u64 / context.itemsize.max(1);
        let mut this = Self {
            view: view.clone(),
            itemsize: context.itemsize,
            bands: Bands::new(shape, range, max)?,
            band: Vec::new(),
            runs: None,
            run: None,
            elements: Elements::new(context.itemsize),
            done: false,
        };
        // What is wrong with the storage is told now, not at the first step.
        Stored::storage(context.files, &view.storage, view.storage_len, 0..view.storage_len)?;
        this.next_band();
        Ok(this)
    }

    pub(crate) fn need(&self) -> Need {
        match &self.run {
            _ if self.done => Need::Done,
            Some((run, ..)) => run.need(),
            None => Need::Step,
        }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8], out: &mut Out<'_>) -> Result<()> {
        self.advance(out, |run, put| run.feed(bytes, put))
    }

    pub(crate) fn step(&mut self, files: &FileSet, out: &mut Out<'_>) -> Result<()> {
        if self.run.is_some() {
            return self.advance(out, |run, put| run.step(files, put));
        }
        let Some(scatter) = self.runs.as_mut().and_then(Runs::next) else { return Ok(()) };
        let start = scatter.storage;
        let len = self.runs.as_ref().map_or(0, |runs| runs.len);
        let bytes = start * self.itemsize..(start + len) * self.itemsize;
        let run = Stored::storage(files, &self.view.storage, self.view.storage_len, bytes)?;
        self.run = Some((run, scatter, start));
        Ok(())
    }

    /// Runs one call of the inner machine, and passes the band on when it is complete.
    fn advance(
        &mut self,
        out: &mut Out<'_>,
        call: impl FnOnce(&mut Stored, &mut Out<'_>) -> Result<()>,
    ) -> Result<()> {
        let Some((run, scatter, at)) = &mut self.run else { return Ok(()) };
        let (elements, band, itemsize) = (&mut self.elements, &mut self.band, self.itemsize);
        call(run, &mut |piece| {
            elements.feed(piece, &mut |whole| {
                scatter.put(*at, whole, itemsize as usize, band);
                *at += whole.len() as u64 / itemsize;
                Ok(())
            })
        })?;
        if run.need() != Need::Done {
            return Ok(());
        }
        self.run = None;
        if self.runs.as_ref().is_some_and(|runs| !runs.done) {
            return Ok(());
        }
        out(&self.band)?;
        self.next_band();
        Ok(())
    }

    fn next_band(&mut self) {
        match self.bands.next() {
            Some(band) => {
                // A band is at most the budget, or one element.
                self.band.resize((band.count * self.itemsize) as usize, 0);
                self.runs = Some(Runs::new(&self.view, &band, self.itemsize));
            }
            None => {
                self.band = Vec::new();
                self.done = true;
            }
        }
    }
}

impl Runs {
    fn new(view: &checkpoint::Strided, band: &Band, itemsize: u64) -> Self {
        let mut whole = Scatter { axes: Vec::new(), storage: 0, band: 0 };
        // All sums are the places of elements, which were checked to lie in the storage.
        let mut storage = view.offset as i128;
        let mut step = 1;
        for dim in (0..band.shape.len()).rev() {
            let (start, len, stride) = (band.start[dim], band.shape[dim], view.strides[dim]);
            storage += i128::from(start) * i128::from(stride);
            if len > 1 {
                let mut axis = Axis { len, storage: stride.unsigned_abs(), band: step };
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
        // A read per run only pays where runs lie far apart; a compressed storage has to be
        // gone through anyway.
        let apart = GAP / itemsize.max(1);
        let mut outer = Vec::new();
        if matches!(*view.storage, Layout::Span(_)) {
            while let Some(axis) = whole.axes.first() {
                let below = reach(&whole.axes[1..]) + 1;
                if axis.storage < below.saturating_add(apart) {
                    break;
                }
                outer.push(whole.axes.remove(0));
            }
        }
        let len = reach(&whole.axes) + 1;
        Self { index: vec![0; outer.len()], outer, inner: whole, len, done: false }
    }

    fn next(&mut self) -> Option<Scatter> {
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

impl Scatter {
    /// Makes one axis of two neighbours that lie behind each other in both storage and band.
    fn join(&mut self) {
        let mut joined: Vec<Axis> = Vec::with_capacity(self.axes.len());
        for axis in self.axes.drain(..) {
            match joined.last_mut() {
                Some(outer)
                    if axis.storage.checked_mul(axis.len) == Some(outer.storage)
                        && axis.band.checked_mul(axis.len as i64) == Some(outer.band) =>
                {
                    *outer = Axis { len: outer.len * axis.len, ..axis };
                }
                _ => joined.push(axis),
            }
        }
        self.axes = joined;
    }

    /// Puts those elements in place that are in `piece`, whose first is `at` in the storage.
    fn put(&self, at: u64, piece: &[u8], size: usize, band: &mut [u8]) {
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

/// Copies the elements `at..end` of the storage to where the band wants them. `SIZE` is the size
/// of an element, or 0 where that is known only as `size`. Walks the axes with a stack of
/// index ranges: only indices whose elements can be in the piece are visited.
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
    // For each outer axis that is entered: the indices left, and the place of its first element.
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
        // On to the next index of the innermost axis that has one.
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

/// Copies `count` elements along one axis, from the element `from` of the piece to the element
/// `to` of the band.
fn copy<const SIZE: usize>(
    axis: &Axis,
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
    // Wrapping, for a step may be larger than an address where only one element is copied.
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

/// The indices of an axis whose elements can be among `at..end`, if its first element is
/// `storage` and those below each index reach that much further.
fn indices(axis: &Axis, storage: u64, reach: u64, at: u64, end: u64) -> Range<u64> {
    if axis.storage == 0 {
        let touches = storage < end && storage + reach >= at;
        return if touches { 0..axis.len } else { 0..0 };
    }
    let first = at.saturating_sub(storage + reach).div_ceil(axis.storage);
    let after = if end > storage { (end - 1 - storage) / axis.storage + 1 } else { 0 };
    let after = after.min(axis.len);
    first.min(after)..after
}

/// Elements from the first to the last.
fn reach(axes: &[Axis]) -> u64 {
    axes.iter().map(|axis| (axis.len - 1) * axis.storage).sum()
}

/// Fails unless every element of the view lies in its storage.
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
        // At most 2^127: a dimension has under 2^64 indices, a stride under 2^63 elements.
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

/// The first byte of a view whose elements lie in C order without gaps, if it is one.
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

/// The span of a file that a dense view covers, if its storage is one.
pub(crate) fn dense_span(view: &checkpoint::Strided, shape: &[u64], itemsize: u64) -> Option<Span> {
    let Layout::Span(storage) = &*view.storage else { return None };
    let start = dense_start(view, shape, itemsize)?;
    let len = count(shape).ok()?.checked_mul(itemsize)?;
    let end = start.checked_add(len)?;
    let fits = end <= view.storage_len && end <= storage.len;
    let offset = storage.offset.checked_add(start)?;
    fits.then_some(Span { file: storage.file, offset, len })
}
