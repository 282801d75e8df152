//! Arrays in chunks, each decoded as a whole.

use std::ops::Range;
use std::sync::Arc;

use statelens_checkpoint::{self as checkpoint, Chunks, Error, Limits, Result, Span};

use super::cells::{ArrayRun, TouchedChunks, copy_box};
use super::spread::{Spread, decode};
use super::staged::Staged;
use super::table::{ChunkTable, chunk_limit};
use super::tiles::{Grid, Tiles};
use super::{Context, LayoutMachine};
use crate::bands::{Band, Bands};
use crate::shape::{count, linear};
use crate::{Need, Out};

/// The average number of times that chunks may be decoded before scratch is used.
const MAX_DECODES: u64 = 2;

/// Smallest size of a band, in bytes, if a row of chunks fits into it.
const SMALL: u64 = 2 << 20;

/// Gathers a chunked array band by band, decoding each chunk that a band touches.
#[derive(Debug)]
pub(crate) struct Chunked {
    chunks: Arc<dyn Chunks>,
    chunk: Vec<u64>,
    grid: Vec<u64>,
    itemsize: usize,
    /// The stored chunks, by their index in the grid in C order.
    table: Arc<ChunkTable>,
    fill: Vec<u8>,
    /// Whether some chunks are not stored.
    sparse: bool,
    bands: Bands,
    now: Option<Now>,
    /// The bytes of the band so far.
    bytes: Vec<u8>,
    /// The bytes of the chunk that is being fed.
    stored: Vec<u8>,
    /// The chunk that was decoded last, by its index in the table.
    decoded: Option<usize>,
    plain: Vec<u8>,
}

/// The band that is being assembled.
#[derive(Debug)]
struct Now {
    band: Band,
    cells: TouchedChunks,
    /// The next chunk, counted in C order of the touched ones.
    next: u64,
    /// Whether the band is in one chunk and is contiguous there, too.
    one_piece: bool,
    /// The chunk that is being read: its index in the table, and the part that has not been fed
    /// yet.
    reading: Option<(usize, Span)>,
}

impl Chunked {
    /// Creates the machine for a chunked array; reads the table of chunks.
    pub(crate) fn start(
        context: &Context<'_>,
        shape: &[u64],
        layout: &checkpoint::Chunked,
        range: Range<u64>,
    ) -> Result<LayoutMachine> {
        let chunk = &layout.shape;
        if chunk.len() != shape.len() || chunk.contains(&0) {
            return Err(Error::damaged(format!(
                "a tensor of shape {shape:?} has chunks of shape {chunk:?}"
            )));
        }
        let size = count(chunk)?.saturating_mul(context.itemsize);
        Limits::check("bytes of a chunk", size, chunk_limit(context))?;
        let mut fill = layout.chunks.fill().to_vec();
        if fill.is_empty() {
            fill.resize(context.itemsize as usize, 0);
        }
        if fill.len() as u64 != context.itemsize {
            return Err(Error::damaged(format!(
                "chunks are filled with {} bytes where an element has {}",
                fill.len(),
                context.itemsize
            )));
        }
        let grid: Vec<u64> =
            shape.iter().zip(chunk).map(|(dim, chunk)| dim.div_ceil(*chunk)).collect();
        let table = ChunkTable::of(context, shape, layout, &range)?;
        if table.chunks.is_empty() {
            return LayoutMachine::fill(&fill, context.itemsize, range.end - range.start);
        }
        if let Some(staged) = crosswise(context, shape, layout, &table, &fill, range.clone())? {
            return Ok(staged);
        }
        let max = band(shape, chunk, context.itemsize, context.budget as u64);
        Ok(LayoutMachine::Chunked(
            Box::new(Self {
                chunks: layout.chunks.clone(),
                chunk: chunk.clone(),
                itemsize: context.itemsize as usize,
                sparse: (table.chunks.len() as u64) < count(&grid)?,
                grid,
                table,
                fill,
                bands: Bands::new(shape, range, max)?.with_chunks(chunk),
                now: None,
                bytes: Vec::new(),
                stored: Vec::new(),
                decoded: None,
                plain: Vec::new(),
            })
            .begun(),
        ))
    }

    fn begun(mut self: Box<Self>) -> Box<Self> {
        self.next_band();
        self
    }

    pub(crate) fn need(&self) -> Need {
        match &self.now {
            None => Need::Done,
            Some(Now { reading: Some((_, span)), .. }) => Need::Feed(*span),
            Some(_) => Need::Step,
        }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8], out: &mut Out<'_>) -> Result<()> {
        let Some(Now { reading: Some((index, span)), .. }) = &mut self.now else { return Ok(()) };
        let index = *index;
        span.offset += bytes.len() as u64;
        span.len -= bytes.len() as u64;
        if span.len > 0 {
            self.stored.extend_from_slice(bytes);
            return Ok(());
        }
        if self.stored.is_empty() {
            self.decode(index, bytes)?;
        } else {
            let mut stored = std::mem::take(&mut self.stored);
            stored.extend_from_slice(bytes);
            self.decode(index, &stored)?;
            stored.clear();
            self.stored = stored;
        }
        if let Some(now) = &mut self.now {
            now.reading = None;
        }
        self.place(out)
    }

    /// Finds the next chunk of the band; copies it if it needs no reading.
    pub(crate) fn step(&mut self, out: &mut Out<'_>) -> Result<()> {
        let Some(now) = &mut self.now else { return Ok(()) };
        let number = now.number(&self.grid);
        let Ok(index) = self.table.chunks.binary_search_by_key(&number, |(number, _)| *number)
        else {
            // The chunk is not stored, and the band has been filled already.
            return if now.one_piece { self.fill_band(out) } else { self.advance(out) };
        };
        if self.decoded == Some(index) {
            return self.place(out);
        }
        let span = self.table.chunks[index].1.span;
        now.reading = Some((index, span));
        if span.len == 0 { self.feed(&[], out) } else { Ok(()) }
    }

    fn decode(&mut self, index: usize, stored: &[u8]) -> Result<()> {
        let chunk = &self.table.chunks[index].1;
        self.decoded = None;
        // The machine's constructor has checked that the size fits.
        let size = self.chunk.iter().product::<u64>() as usize * self.itemsize;
        decode(&*self.chunks, chunk, stored, &mut self.plain, size)?;
        self.decoded = Some(index);
        Ok(())
    }

    /// Copies the decoded chunk into the band, or passes it on if it contains the whole band.
    fn place(&mut self, out: &mut Out<'_>) -> Result<()> {
        let Some(now) = &self.now else { return Ok(()) };
        let cell = now.cell();
        let from: Vec<u64> =
            cell.iter().zip(&self.chunk).map(|(cell, chunk)| cell * chunk).collect();
        if now.one_piece {
            let start: Vec<u64> =
                now.band.start.iter().zip(&from).map(|(at, from)| at - from).collect();
            let at = linear(&start, &self.chunk) as usize * self.itemsize;
            out(&self.plain[at..at + now.band.count as usize * self.itemsize])?;
            self.next_band();
            return Ok(());
        }
        let part = now.band.within(&from, &self.chunk);
        let source =
            ArrayRun { bytes: &self.plain, shape: &self.chunk, start: &part.from, first: 0 };
        let target = (self.bytes.as_mut_slice(), now.band.shape.as_slice(), part.to.as_slice());
        copy_box(&part.shape, source, target, self.itemsize);
        self.advance(out)
    }

    /// Advances to the next chunk; passes the band on after the last one.
    fn advance(&mut self, out: &mut Out<'_>) -> Result<()> {
        let Some(now) = &mut self.now else { return Ok(()) };
        now.next += 1;
        if now.next == now.cells.total {
            out(&self.bytes)?;
            self.next_band();
        }
        Ok(())
    }

    /// Passes on a band in a single chunk that is not stored.
    fn fill_band(&mut self, out: &mut Out<'_>) -> Result<()> {
        let Some(now) = &self.now else { return Ok(()) };
        let mut left = now.band.count as usize;
        let piece = self.fill.repeat((16 << 10).min(left));
        while left > 0 {
            let take = left.min(16 << 10);
            out(&piece[..take * self.itemsize])?;
            left -= take;
        }
        self.next_band();
        Ok(())
    }

    fn next_band(&mut self) {
        self.now = self.bands.next().map(|band| Now::new(band, &self.chunk));
        let Some(now) = &self.now else {
            self.bytes = Vec::new();
            self.plain = Vec::new();
            return;
        };
        if now.one_piece {
            return;
        }
        let len = now.band.count as usize * self.itemsize;
        self.bytes.resize(len, 0);
        if self.sparse {
            for item in self.bytes.chunks_exact_mut(self.itemsize) {
                item.copy_from_slice(&self.fill);
            }
        }
    }
}

impl Now {
    fn new(band: Band, chunk: &[u64]) -> Self {
        let cells = TouchedChunks::new(&band, chunk);
        let below = band.shape.iter().position(|len| *len > 1).map_or(chunk.len(), |dim| dim + 1);
        let one_piece = cells.total == 1 && band.shape[below..] == chunk[below..];
        Self { band, cells, next: 0, one_piece, reading: None }
    }

    /// Returns the next chunk, as indices in the grid.
    fn cell(&self) -> Vec<u64> {
        self.cells.cell(self.next)
    }

    fn number(&self, grid: &[u64]) -> u64 {
        linear(&self.cell(), grid)
    }
}

/// Returns the most elements in a band. If a row of chunks fits into the budget, a few rows are
/// enough: they stay in the processor's cache until they are passed on.
fn band(shape: &[u64], chunk: &[u64], itemsize: u64, budget: u64) -> u64 {
    let max = budget / itemsize.max(1);
    let rest = shape.iter().skip(1).try_fold(1u64, |all, len| all.checked_mul(*len));
    let row = chunk.first().zip(rest).and_then(|(first, rest)| first.checked_mul(rest));
    match row {
        Some(row) if row <= max => max.min(row.max(SMALL / itemsize.max(1))),
        _ => max,
    }
}

/// Returns a machine that decodes each chunk once, into scratch, if bands would touch the same
/// chunks repeatedly; `None` if they would not, or if there is no scratch.
fn crosswise(
    context: &Context<'_>,
    shape: &[u64],
    layout: &checkpoint::Chunked,
    table: &Arc<ChunkTable>,
    fill: &[u8],
    range: Range<u64>,
) -> Result<Option<LayoutMachine>> {
    let (chunk, itemsize) = (&layout.shape, context.itemsize);
    let max = context.budget as u64 / itemsize.max(1);
    let wanted = range.end - range.start;
    let all = 0..count(shape)?;
    let Some(band) = Bands::new(shape, all, max)?.with_chunks(chunk).next() else {
        return Ok(None);
    };
    let grid: Vec<u64> = shape.iter().zip(chunk).map(|(dim, chunk)| dim.div_ceil(*chunk)).collect();
    let bands = wanted.div_ceil(band.count);
    let touched = u128::from(TouchedChunks::new(&band, chunk).total) * u128::from(bands);
    // Assumes that the same share of the touched chunks is stored as of all chunks.
    let stored = table.chunks.len() as u64;
    let decoded = touched * u128::from(stored) / u128::from(count(&grid)?.max(1));
    let decoded = u64::try_from(decoded).unwrap_or(u64::MAX);
    if bands < 2 || decoded <= stored.saturating_mul(MAX_DECODES) {
        return Ok(None);
    }
    let size = count(chunk)?.saturating_mul(itemsize);
    let Some(scratch) = context.files.scratch() else {
        let work = decoded.saturating_mul(size);
        let times = decoded.div_ceil(stored.max(1));
        return context.bearable(times, work, wanted.saturating_mul(itemsize)).map(|()| None);
    };
    let area = scratch.area(stored.saturating_mul(size))?;
    let places = table.chunks.iter().zip(0..).map(|((number, _), index)| (*number, index * size));
    let places = Grid {
        shape: shape.to_vec(),
        tile: chunk.clone(),
        counts: grid,
        places: places.collect(),
        clipped: false,
    };
    let next = Tiles::new(context, places, area.clone(), fill, range)?;
    let spread = Spread::new(layout.chunks.clone(), table.clone(), size as usize);
    Ok(Some(Staged::before(
        LayoutMachine::Spread(Box::new(spread)),
        area,
        LayoutMachine::Tiles(Box::new(next)),
    )))
}
