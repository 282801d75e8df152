//! Parts one after the other along an axis.

use std::ops::Range;

use statelens_checkpoint::{self as checkpoint, Error, FileSet, Part, Result};

use crate::stored::{Context, Stored, count};
use crate::{Need, Out};

/// Gathers a concatenation: rows of all parts in turn, put together in a buffer where rows are
/// short, passed straight on where they are long.
#[derive(Debug)]
pub(crate) struct Concat {
    parts: Vec<Part>,
    /// For each part, the elements that one row (all dimensions before the axis fixed) takes of
    /// it, and where they start in the row.
    rows: Vec<Range<u64>>,
    /// Elements of a row of the whole.
    row: u64,
    itemsize: u64,
    budget: usize,
    depth: u32,
    rest: Range<u64>,
    /// Rows that are being put together.
    band: Option<Band>,
    part: Option<Stored>,
    bytes: Vec<u8>,
}

/// Whole rows, put together part by part.
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
        Ok(Self {
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
        match &self.part {
            Some(part) => part.need(),
            None if self.band.is_none() && self.rest.is_empty() => Need::Done,
            None => Need::Step,
        }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8], out: &mut Out<'_>) -> Result<()> {
        self.advance(out, |part, put| part.feed(bytes, put))
    }

    pub(crate) fn step(&mut self, files: &FileSet, out: &mut Out<'_>) -> Result<()> {
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
        let context =
            Context { files, itemsize: self.itemsize, budget: self.budget, depth: self.depth };
        let Part { shape, layout } = &self.parts[part];
        let stored = Stored::new(&context, shape, layout, range)?;
        let nothing = stored.need() == Need::Done;
        self.part = Some(stored);
        if nothing { self.advance(out, |_, _| Ok(())) } else { Ok(()) }
    }

    /// Elements that one row takes of a part.
    fn inner(&self, part: usize) -> u64 {
        self.rows[part].end - self.rows[part].start
    }

    /// Takes as many whole rows as the budget holds, if the next element starts a row and rows
    /// are short enough to be worth it.
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

    /// The next part of a row: which part, and which of its elements.
    fn next_run(&mut self) -> (usize, Range<u64>) {
        let (row, at) = (self.rest.start / self.row, self.rest.start % self.row);
        // Parts without elements end where they start: this finds one that has the element.
        let part = self.rows.partition_point(|part| part.end <= at);
        let inner = self.inner(part);
        let first = row * inner + at - self.rows[part].start;
        let mut len = self.rows[part].end - at;
        if len == self.row {
            // One part makes up the whole row, so its rows follow each other.
            len = self.rest.end - self.rest.start;
        }
        let len = len.min(self.rest.end - self.rest.start);
        self.rest.start += len;
        (part, first..first + len)
    }

    fn advance(
        &mut self,
        out: &mut Out<'_>,
        call: impl FnOnce(&mut Stored, &mut Out<'_>) -> Result<()>,
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
