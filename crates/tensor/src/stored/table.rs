//! The table of the chunks of an array, read and checked once for all machines that gather a part
//! of it.

use std::ops::Range;
use std::ptr;
use std::sync::Arc;

use statelens_checkpoint::{Chunk, Chunked, Chunks, Error, Limits, Result, order};

use super::{Context, check_span};
use crate::shape::{count, linear};

#[derive(Debug)]
pub(crate) struct ChunkTable {
    /// Chunks by their index in the grid in C order.
    pub(crate) chunks: Vec<(u64, Chunk)>,
    /// Bytes of the longest stored chunk.
    longest: u64,
}

struct Of {
    chunks: Arc<dyn Chunks>,
    /// Shapes of the array and of a chunk.
    shapes: [Vec<u64>; 2],
}

impl ChunkTable {
    /// Returns the table of an array of which the elements `range` are needed. Fails for chunks
    /// that are duplicates, off the grid, or outside the array or their file.
    pub(crate) fn of(
        context: &Context<'_>,
        shape: &[u64],
        array: &Chunked,
        range: &Range<u64>,
    ) -> Result<Arc<Self>> {
        let read = || {
            let chunks = sorted(array.chunks.table(context.files)?, shape, &array.shape)?;
            chunks.iter().try_for_each(|(_, chunk)| check_span(context.files, &chunk.span))?;
            let longest = chunks.iter().map(|(_, chunk)| chunk.span.len).max().unwrap_or(0);
            Ok(Self { chunks, longest })
        };
        let table = match *range == (0..count(shape)?) {
            true => Arc::new(read()?),
            false => {
                let shapes = [shape.to_vec(), array.shape.clone()];
                context.files.recent(Of { chunks: array.chunks.clone(), shapes }, read)?
            }
        };
        let most = chunk_limit(context).saturating_mul(2);
        Limits::check("bytes of a stored chunk", table.longest, most)?;
        Ok(table)
    }
}

impl PartialEq for Of {
    fn eq(&self, other: &Self) -> bool {
        ptr::addr_eq(Arc::as_ptr(&self.chunks), Arc::as_ptr(&other.chunks))
            && self.shapes == other.shapes
    }
}

/// Returns the size of the largest chunk that may be decoded: that of the limits, or the budget if
/// that is more.
pub(crate) fn chunk_limit(context: &Context<'_>) -> u64 {
    context.files.limits().chunk.max(context.budget as u64)
}

/// Returns the chunks sorted by their index in the grid. Fails for chunks that are duplicates, off
/// the grid, or outside the array.
fn sorted(table: Vec<Chunk>, shape: &[u64], chunk: &[u64]) -> Result<Vec<(u64, Chunk)>> {
    let grid: Vec<u64> = shape.iter().zip(chunk).map(|(dim, chunk)| dim.div_ceil(*chunk)).collect();
    let mut numbered = Vec::with_capacity(table.len());
    for entry in table {
        let at = &entry.at;
        let sound = at.len() == shape.len()
            && at.iter().zip(shape).all(|(at, dim)| at < dim)
            && at.iter().zip(chunk).all(|(at, chunk)| at % chunk == 0);
        if !sound {
            return Err(Error::damaged(format!(
                "a chunk is recorded at {at:?} of a tensor of shape {shape:?} in chunks of \
                 {chunk:?}"
            ))
            .at(entry.span.offset));
        }
        let cell: Vec<u64> = at.iter().zip(chunk).map(|(at, chunk)| at / chunk).collect();
        numbered.push((linear(&cell, &grid), entry));
    }
    order::by_key(&mut numbered, |(number, _)| *number);
    if let Some(pair) = numbered.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        let [(_, first), (_, second)] = pair else { return Ok(numbered) };
        return Err(Error::damaged(format!(
            "the chunk that starts at {:?} is there twice",
            first.at
        ))
        .at(second.span.offset));
    }
    Ok(numbered)
}
