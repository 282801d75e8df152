//! Parts that are concatenated along an axis.

use std::ops::Range;
use std::sync::Arc;

use statelens_checkpoint::{self as checkpoint, Area, Error, FileSet, Layout, Part, Result};

use super::{Context, LayoutMachine};
use crate::shape::count;
use crate::view::dense_start;
use crate::{Need, Out};

/// Gathers a concatenation: the rows of all parts in turn. Short rows are collected in a buffer,
/// long rows are passed on directly.
#[derive(Debug)]
pub(crate) struct Concat {
    parts: Vec<Part>,
    /// For each part, the range of a row (all dimensions before the axis fixed) that comes from it,
    /// in elements.
    rows: Vec<Range<u64>>,
    /// Elements per row of the whole array.
    row: u64,
    itemsize: u64,
    budget: usize,
    depth: u32,
    rest: Range<u64>,
    /// The rows that are being assembled.
    band: Option<Band>,
    part: Option<LayoutMachine>,
    bytes: Vec<u8>,
    /// Copies in scratch of parts that can only be read from the start and are needed more than
    /// twice. `unkept` is the first part that has not been considered yet.
    kept: Vec<Option<Arc<dyn Area>>>,
    unkept: usize,
    /// The part that is being copied to scratch, and its bytes so far.
    keeping: Option<(LayoutMachine, Arc<dyn Area>, u64)>,
}

/// Whole rows that are assembled part by part.
#[derive(Debug)]
struct Band {
    first_row: u64,
    rows: u64,
    /// The part that is being gathered, and its bytes so far.
    part: usize,
    taken: u64,
}

impl Concat {
    pub(crate) fn new(
        context: &Context<'_>,
        shape: &[u64],
        concat: &checkpoint::Concat,
        range: Range<u64>,
    ) -> Result<Self> {
        let axis = concat.axis;
        let mut rows = Vec::with_capacity(concat.parts.len());
        let mut end = 0u64;
        for part in &concat.parts {
            let same = axis < shape.len()
                && part.shape.len() == shape.len()
                && (0..shape.len()).all(|dim| dim == axis || part.shape[dim] == shape[dim]);
            let inner = if same { count(&part.shape[axis..])? } else { 0 };
            let after = end.checked_add(inner).filter(|_| same).ok_or_else(|| {
                Error::damaged(format!(
                    "a part of shape {:?} does not fit a tensor of shape {shape:?} along \
                     dimension {axis}",
                    part.shape
                ))
            })?;
            rows.push(end..after);
            end = after;
        }
        let row = if axis < shape.len() { count(&shape[axis..])? } else { 0 };
        if end != row {
            return Err(Error::damaged(format!(
                "the parts of a tensor of shape {shape:?} have {end} elements in a row"
            ))
            .expected(row.to_string()));
        }
        let first_row = range.start / row.max(1);
        let entered = range.end.div_ceil(row.max(1)) - first_row;
        let fit = (context.budget / 2) as u64 / row.saturating_mul(context.itemsize).max(1);
        let again = context.files.scratch().is_some() && entered.div_ceil(fit.max(1)) > 2;
        Ok(Self {
            kept: vec![None; concat.parts.len()],
            unkept: if again && rows.iter().all(|part| part.end - part.start < row) {
                0
            } else {
                concat.parts.len()
            },
            keeping: None,
            parts: concat.parts.clone(),
            rows,
            row,
            itemsize: context.itemsize,
            budget: context.budget / 2,
            depth: context.depth + 1,
            rest: range,
            band: None,
            part: None,
            bytes: Vec::new(),
        })
    }

    pub(crate) fn need(&self) -> Need {
        match (&self.keeping, &self.part) {
            (Some((part, ..)), _) | (None, Some(part)) => part.need(),
            _ if self.band.is_none() && self.rest.is_empty() => Need::Done,
            _ => Need::Step,
        }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8], out: &mut Out<'_>) -> Result<()> {
        if self.keeping.is_some() {
            return self.keep(|part, put| part.feed(bytes, put));
        }
        self.advance(out, |part, put| part.feed(bytes, put))
    }

    pub(crate) fn step(&mut self, files: &FileSet, out: &mut Out<'_>) -> Result<()> {
        if self.keeping.is_some() {
            return self.keep(|part, put| part.step(files, put));
        }
        if self.unkept < self.parts.len() {
            return self.start_keeping(files);
        }
        if self.part.is_some() {
            return self.advance(out, |part, put| part.step(files, put));
        }
        if self.band.is_none() {
            self.start_band();
        }
        let (part, range) = match &self.band {
            Some(band) => {
                let inner = self.inner(band.part);
                (band.part, band.first_row * inner..(band.first_row + band.rows) * inner)
            }
            None => self.next_run(),
        };
        let stored = match &self.kept[part] {
            Some(area) => {
                let range = range.start * self.itemsize..range.end * self.itemsize;
                if range.is_empty() {
                    LayoutMachine::Done
                } else {
                    LayoutMachine::Area { area: area.clone(), range }
                }
            }
            None => {
                let Part { shape, layout } = &self.parts[part];
                LayoutMachine::new(&self.context(files), shape, layout, range)?
            }
        };
        let nothing = stored.need() == Need::Done;
        self.part = Some(stored);
        if nothing { self.advance(out, |_, _| Ok(())) } else { Ok(()) }
    }

    fn context<'a>(&self, files: &'a FileSet) -> Context<'a> {
        Context { files, itemsize: self.itemsize, budget: self.budget, depth: self.depth }
    }

    /// Considers the next part, and starts copying it to scratch if it would otherwise have to be
    /// restarted for each of its rows.
    fn start_keeping(&mut self, files: &FileSet) -> Result<()> {
        let index = self.unkept;
        self.unkept += 1;
        let Part { shape, layout } = &self.parts[index];
        let layout = match layout {
            Layout::Deferred(deferred) => deferred.layout(files, shape)?,
            layout => layout,
        };
        let numel = count(shape)?;
        let again = match layout {
            Layout::Packed(_) | Layout::Chunked(_) | Layout::Concat(_) | Layout::Dequantised(_) => {
                true
            }
            Layout::Computed(computed) => {
                computed.product.is_some()
                    || !matches!(computed.of.layout, Layout::Span(_) | Layout::Fill(_))
            }
            Layout::Strided(view) => {
                dense_start(view, shape, self.itemsize).is_none()
                    || !matches!(*view.storage, Layout::Span(_))
            }
            _ => false,
        };
        let (true, true, Some(scratch)) = (again, numel > 0, files.scratch()) else {
            return Ok(());
        };
        let area = scratch.area(numel.saturating_mul(self.itemsize))?;
        let stored = LayoutMachine::new(&self.context(files), shape, layout, 0..numel)?;
        self.keeping = Some((stored, area.clone(), 0));
        self.kept[index] = Some(area);
        Ok(())
    }

    fn keep(
        &mut self,
        call: impl FnOnce(&mut LayoutMachine, &mut Out<'_>) -> Result<()>,
    ) -> Result<()> {
        let Some((stored, area, written)) = &mut self.keeping else { return Ok(()) };
        call(stored, &mut |piece| {
            area.write_at(*written, piece)?;
            *written += piece.len() as u64;
            Ok(())
        })?;
        if stored.need() == Need::Done {
            self.keeping = None;
        }
        Ok(())
    }

    /// Returns the elements that one row takes from a part.
    fn inner(&self, part: usize) -> u64 {
        self.rows[part].end - self.rows[part].start
    }

    /// Takes as many whole rows as the budget holds, if the next element starts a row and rows are
    /// short enough to be worth it.
    fn start_band(&mut self) {
        let rows = (self.rest.end - self.rest.start) / self.row;
        let fit = self.budget as u64 / self.row.saturating_mul(self.itemsize).max(1);
        let rows = rows.min(fit);
        if !self.rest.start.is_multiple_of(self.row) || rows < 2 {
            return;
        }
        self.bytes.resize((rows * self.row * self.itemsize) as usize, 0);
        self.band = Some(Band { first_row: self.rest.start / self.row, rows, part: 0, taken: 0 });
        self.rest.start += rows * self.row;
    }

    /// Returns the next part of a row: the index of the part, and the range of its elements.
    fn next_run(&mut self) -> (usize, Range<u64>) {
        let (row, at) = (self.rest.start / self.row, self.rest.start % self.row);
        // Parts without elements end where they start, so this finds the part that has the element.
        let part = self.rows.partition_point(|part| part.end <= at);
        let inner = self.inner(part);
        let first = row * inner + at - self.rows[part].start;
        let mut len = self.rows[part].end - at;
        if len == self.row {
            // One part makes up the whole row, so its rows are contiguous.
            len = self.rest.end - self.rest.start;
        }
        let len = len.min(self.rest.end - self.rest.start);
        self.rest.start += len;
        (part, first..first + len)
    }

    fn advance(
        &mut self,
        out: &mut Out<'_>,
        call: impl FnOnce(&mut LayoutMachine, &mut Out<'_>) -> Result<()>,
    ) -> Result<()> {
        let Some(part) = &mut self.part else { return Ok(()) };
        let Some(band) = &mut self.band else {
            call(part, out)?;
            if part.need() == Need::Done {
                self.part = None;
            }
            return Ok(());
        };
        let columns = &self.rows[band.part];
        let (row, itemsize) = (self.row * self.itemsize, self.itemsize);
        let inner = (columns.end - columns.start) * itemsize;
        let column = columns.start * itemsize;
        let bytes = &mut self.bytes;
        call(part, &mut |mut piece| {
            while !piece.is_empty() {
                let (in_row, at) = (band.taken / inner, band.taken % inner);
                let take = (inner - at).min(piece.len() as u64) as usize;
                let to = (in_row * row + column + at) as usize;
                bytes[to..to + take].copy_from_slice(&piece[..take]);
                piece = &piece[take..];
                band.taken += take as u64;
            }
            Ok(())
        })?;
        if part.need() != Need::Done {
            return Ok(());
        }
        self.part = None;
        band.part += 1;
        band.taken = 0;
        if band.part == self.parts.len() {
            self.band = None;
            out(&self.bytes)?;
        }
        Ok(())
    }
}

pub(crate) fn shape(concat: &checkpoint::Concat) -> Result<Vec<u64>> {
    let mut shape = concat.parts.first().map_or(Vec::new(), |part| part.shape.clone());
    let along = concat.parts.iter().map(|part| part.shape.get(concat.axis).copied());
    let sum = along.map(|len| len.unwrap_or(0)).try_fold(0u64, |sum, len| sum.checked_add(len));
    match (shape.get_mut(concat.axis), sum) {
        (Some(len), Some(sum)) => *len = sum,
        _ => return Err(Error::damaged("the parts of a storage don't have a common shape")),
    }
    Ok(shape)
}
