//! Cells of a grid of chunks or tiles: finds those that a band touches, and copies boxes out of
//! them.

use crate::bands::Band;

/// The chunks that a band touches: first index and count along each dimension.
#[derive(Debug)]
pub(crate) struct TouchedChunks {
    first: Vec<u64>,
    counts: Vec<u64>,
    pub(crate) total: u64,
}

impl TouchedChunks {
    pub(crate) fn new(band: &Band, chunk: &[u64]) -> Self {
        let first: Vec<u64> = band.start.iter().zip(chunk).map(|(at, chunk)| at / chunk).collect();
        let counts: Vec<u64> = (0..chunk.len())
            .map(|dim| (band.start[dim] + band.shape[dim]).div_ceil(chunk[dim]) - first[dim])
            .collect();
        let total = counts.iter().product();
        Self { first, counts, total }
    }

    /// Returns one of the chunks, counted in C order, as indices in the grid.
    pub(crate) fn cell(&self, number: u64) -> Vec<u64> {
        let mut rest = number;
        let mut cell = self.first.clone();
        for dim in (0..cell.len()).rev() {
            cell[dim] += rest % self.counts[dim];
            rest /= self.counts[dim];
        }
        cell
    }
}

/// A contiguous part of an array: its bytes, the shape of the array, the start of a box in the
/// array, and the position of the part's first element in C order.
pub(crate) struct ArrayRun<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) shape: &'a [u64],
    pub(crate) start: &'a [u64],
    pub(crate) first: u64,
}

/// Copies a box of `shape` from a contiguous part of one array to another array in memory, which is
/// given as its bytes, its shape, and the start of the box in it.
pub(crate) fn copy_box(
    shape: &[u64],
    ArrayRun { bytes: from, shape: from_shape, start: from_start, first }: ArrayRun<'_>,
    (to, to_shape, to_start): (&mut [u8], &[u64], &[u64]),
    itemsize: usize,
) {
    let Some((run, outer)) = shape.split_last() else {
        to[..itemsize].copy_from_slice(&from[..itemsize]);
        return;
    };
    let run = *run as usize * itemsize;
    let (from_steps, to_steps) = (steps(from_shape, itemsize), steps(to_shape, itemsize));
    let mut from_at = place(from_start, &from_steps) - first as usize * itemsize;
    let mut to_at = place(to_start, &to_steps);
    let mut index = vec![0; outer.len()];
    loop {
        to[to_at..to_at + run].copy_from_slice(&from[from_at..from_at + run]);
        // Advances to the next row: increments the last dimension that has indices left, and resets
        // those after it.
        let mut dim = outer.len();
        loop {
            if dim == 0 {
                return;
            }
            dim -= 1;
            index[dim] += 1;
            from_at += from_steps[dim];
            to_at += to_steps[dim];
            if index[dim] < outer[dim] {
                break;
            }
            index[dim] = 0;
            from_at -= from_steps[dim] * outer[dim] as usize;
            to_at -= to_steps[dim] * outer[dim] as usize;
        }
    }
}

/// Returns the bytes from one index to the next, for each dimension of an array in memory.
fn steps(shape: &[u64], itemsize: usize) -> Vec<usize> {
    let mut steps = vec![itemsize; shape.len()];
    for dim in (1..shape.len()).rev() {
        steps[dim - 1] = steps[dim] * shape[dim] as usize;
    }
    steps
}

/// Returns the byte offset of an element of an array in memory.
fn place(index: &[u64], steps: &[usize]) -> usize {
    index.iter().zip(steps).map(|(index, step)| *index as usize * step).sum()
}
