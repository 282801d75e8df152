//! The index of the chunks of a dataset.

use statelens_checkpoint::{Encoding, Error, Result, StoredChunk};

use super::bytes::Put;
use super::heap::Heap;
use super::tree;

/// Children per node: twice the K of every file with a superblock of version 0.
const CHILDREN: usize = 64;

/// More than any tensor needs: 16 TiB in chunks of 1 MiB.
const MAX_CHUNKS: u64 = 1 << 24;

/// Returns the number of chunks of an array of `shape`.
pub(super) fn count(shape: &[u64], encoding: &Encoding) -> Result<usize> {
    let grid = encoding.grid(shape);
    let count = grid.iter().try_fold(1u64, |count, dim| count.checked_mul(*dim));
    let count = count.filter(|count| *count <= MAX_CHUNKS).map(usize::try_from);
    count.and_then(|count| count.ok()).ok_or_else(|| {
        Error::unsupported(format!(
            "a dataset of shape {shape:?} has more than {MAX_CHUNKS} chunks"
        ))
        .advice("Write it without compression.")
    })
}

/// Writes the B-tree of the chunks of an array of `shape`, which are stored in C order of their
/// grid, and returns its address.
pub(super) fn write(
    shape: &[u64],
    encoding: &Encoding,
    stored: &[StoredChunk],
    heap: &mut Heap,
) -> Result<u64> {
    let grid = encoding.grid(shape);
    if count(shape, encoding)? != stored.len() {
        return Err(Error::unsupported(format!(
            "a dataset of shape {shape:?} came in {} chunks, its grid is {grid:?}",
            stored.len()
        )));
    }
    let mut at = vec![0u64; grid.len()];
    let mut keys = Vec::with_capacity(stored.len() + 1);
    for chunk in stored {
        let len = u32::try_from(chunk.len)
            .map_err(|_| Error::unsupported("a stored chunk of 4 GiB or more"))?;
        keys.push(key(len, chunk.mask, &at, &encoding.chunk));
        for (index, dim) in at.iter_mut().zip(&grid).rev() {
            *index += 1;
            if *index < *dim {
                break;
            }
            *index = 0;
        }
    }
    // After the last chunk: one more along the first dimension.
    let mut end = vec![0; grid.len()];
    if let (Some(end), Some(dim)) = (end.first_mut(), grid.first()) {
        *end = *dim;
    }
    keys.push(key(0, 0, &end, &encoding.chunk));
    let children = stored.iter().map(|chunk| chunk.offset).collect();
    let root = tree::build(tree::NodeType::Chunks, CHILDREN, children, keys, heap);
    Ok(heap.append(&root))
}

/// Returns the key of a chunk: size, mask, and first element; the last number is the offset inside
/// an element.
fn key(len: u32, mask: u32, at: &[u64], chunk: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    out.u32(len);
    out.u32(mask);
    for (index, dim) in at.iter().zip(chunk) {
        out.u64(index * dim);
    }
    out.u64(0);
    out
}
