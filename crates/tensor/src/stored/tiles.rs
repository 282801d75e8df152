//! Arrays that are kept in scratch as tiles.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use statelens_checkpoint::{Area, Result};

use super::Context;
use super::cells::{ArrayRun, TouchedChunks, copy_box};
use crate::bands::{Band, Bands};
use crate::shape::linear;
use crate::{Need, Out};

/// The locations of the tiles of an array.
#[derive(Debug)]
pub(crate) struct Grid {
    pub(crate) shape: Vec<u64>,
    pub(crate) tile: Vec<u64>,
    pub(crate) counts: Vec<u64>,
    /// Tiles by their index in C order, with their first byte; sorted.
    pub(crate) places: Vec<(u64, u64)>,
    /// Whether tiles at the far edges end with the array (rather than being padded).
    pub(crate) clipped: bool,
}

/// Assembles an array band by band. The part of a band in a tile is contiguous in the tile, because
/// a band is complete in all dimensions after the one in which it is a range.
pub(crate) struct Tiles {
    grid: Grid,
    area: Arc<dyn Area>,
    itemsize: usize,
    /// The element for missing tiles; empty if all tiles exist.
    fill: Vec<u8>,
    bands: Bands,
    next: Option<Band>,
    bytes: Vec<u8>,
    run: Vec<u8>,
}

impl Grid {
    /// Creates a grid of tiles that end with the array.
    pub(crate) fn clipped(shape: &[u64], tile: &[u64], mut places: Vec<(u64, u64)>) -> Self {
        places.sort_unstable();
        let counts = shape.iter().zip(tile).map(|(len, tile)| len.div_ceil(*tile)).collect();
        Self { shape: shape.to_vec(), tile: tile.to_vec(), counts, places, clipped: true }
    }

    /// Returns the shape of the tile that begins at `from`.
    fn tile_at(&self, from: &[u64]) -> Vec<u64> {
        let clip = |dim: usize| match self.clipped {
            true => self.tile[dim].min(self.shape[dim] - from[dim]),
            false => self.tile[dim],
        };
        (0..from.len()).map(clip).collect()
    }
}

impl Tiles {
    pub(crate) fn new(
        context: &Context<'_>,
        grid: Grid,
        area: Arc<dyn Area>,
        fill: &[u8],
        range: Range<u64>,
    ) -> Result<Self> {
        let max = context.budget as u64 / context.itemsize.max(1);
        let mut bands = Bands::new(&grid.shape, range, max)?;
        let next = bands.next();
        Ok(Self {
            grid,
            area,
            itemsize: context.itemsize as usize,
            fill: fill.to_vec(),
            bands,
            next,
            bytes: Vec::new(),
            run: Vec::new(),
        })
    }

    pub(crate) fn need(&self) -> Need {
        if self.next.is_some() { Need::Step } else { Need::Done }
    }

    pub(crate) fn step(&mut self, out: &mut Out<'_>) -> Result<()> {
        let Some(band) = self.next.take() else { return Ok(()) };
        self.bytes.resize(band.count as usize * self.itemsize, 0);
        if !self.fill.is_empty() {
            for item in self.bytes.chunks_exact_mut(self.itemsize) {
                item.copy_from_slice(&self.fill);
            }
        }
        let cells = TouchedChunks::new(&band, &self.grid.tile);
        for number in 0..cells.total {
            self.place(&band, &cells.cell(number))?;
        }
        out(&self.bytes)?;
        self.next = self.bands.next();
        if self.next.is_none() {
            (self.bytes, self.run) = (Vec::new(), Vec::new());
        }
        Ok(())
    }

    /// Reads the part of the band that is in a tile.
    fn place(&mut self, band: &Band, cell: &[u64]) -> Result<()> {
        let number = linear(cell, &self.grid.counts);
        let Ok(index) = self.grid.places.binary_search_by_key(&number, |(number, _)| *number)
        else {
            return Ok(());
        };
        let from: Vec<u64> =
            cell.iter().zip(&self.grid.tile).map(|(cell, tile)| cell * tile).collect();
        let tile = self.grid.tile_at(&from);
        let part = band.within(&from, &tile);
        let last: Vec<u64> =
            part.from.iter().zip(&part.shape).map(|(from, len)| from + len - 1).collect();
        let first = linear(&part.from, &tile);
        let count = linear(&last, &tile) + 1 - first;
        self.run.resize(count as usize * self.itemsize, 0);
        let at = self.grid.places[index].1 + first * self.itemsize as u64;
        self.area.read_at(at, &mut self.run)?;
        let source = ArrayRun { bytes: &self.run, shape: &tile, start: &part.from, first };
        copy_box(&part.shape, source, (&mut self.bytes, &band.shape, &part.to), self.itemsize);
        Ok(())
    }
}

impl fmt::Debug for Tiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tiles({:?} in {:?})", self.grid.shape, self.grid.tile)
    }
}
