//! Chunks decoded one after another, each once and as a whole.

use std::sync::Arc;

use statelens_checkpoint::{Chunk, Chunks, Error, Result, Span};

use super::table::ChunkTable;
use crate::{Need, Out};

/// Passes on the elements of all stored chunks, in the order of the table.
#[derive(Debug)]
pub(crate) struct Spread {
    chunks: Arc<dyn Chunks>,
    table: Arc<ChunkTable>,
    /// Bytes of a decoded chunk.
    size: usize,
    index: usize,
    /// The part of the chunk that has not been fed yet.
    rest: Option<Span>,
    stored: Vec<u8>,
    plain: Vec<u8>,
}

impl Spread {
    pub(crate) fn new(chunks: Arc<dyn Chunks>, table: Arc<ChunkTable>, size: usize) -> Self {
        let rest = table.chunks.first().map(|(_, chunk)| chunk.span);
        Self { chunks, table, size, index: 0, rest, stored: Vec::new(), plain: Vec::new() }
    }

    pub(crate) fn need(&self) -> Need {
        match self.rest {
            Some(span) if span.len == 0 => Need::Step,
            Some(span) => Need::Feed(span),
            None => Need::Done,
        }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8], out: &mut Out<'_>) -> Result<()> {
        let Some(rest) = &mut self.rest else { return Ok(()) };
        rest.offset += bytes.len() as u64;
        rest.len -= bytes.len() as u64;
        self.stored.extend_from_slice(bytes);
        if rest.len > 0 {
            return Ok(());
        }
        let (_, chunk) = &self.table.chunks[self.index];
        decode(&*self.chunks, chunk, &self.stored, &mut self.plain, self.size)?;
        self.stored.clear();
        self.index += 1;
        self.rest = self.table.chunks.get(self.index).map(|(_, chunk)| chunk.span);
        out(&self.plain)
    }

    /// Decodes a chunk without bytes, for which nothing can be fed.
    pub(crate) fn step(&mut self, out: &mut Out<'_>) -> Result<()> {
        if self.need() == Need::Step { self.feed(&[], out) } else { Ok(()) }
    }
}

/// Decodes a chunk; fails unless the result has `size` bytes.
pub(crate) fn decode(
    chunks: &dyn Chunks,
    chunk: &Chunk,
    stored: &[u8],
    plain: &mut Vec<u8>,
    size: usize,
) -> Result<()> {
    plain.clear();
    chunks.decode(chunk, stored, plain).map_err(|error| error.at(chunk.span.offset))?;
    if plain.len() == size {
        return Ok(());
    }
    Err(Error::damaged(format!("a chunk has {} bytes when decoded", plain.len()))
        .at(chunk.span.offset)
        .expected(size.to_string()))
}
