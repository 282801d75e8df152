//! Assembles a tensor from chunks at arbitrary positions.

use statelens_checkpoint::{Concat, Layout, Part, order};

/// The maximum nesting of concatenations: one level for each partitioned dimension, and two more
/// than a grid needs, for irregular partitions.
const LEVELS: usize = 6;

#[derive(Debug)]
pub(super) struct Chunk {
    /// The index of its first element in the tensor, per dimension.
    pub(super) at: Vec<u64>,
    pub(super) shape: Vec<u64>,
    pub(super) layout: Layout,
}

impl Chunk {
    fn end(&self, axis: usize) -> u64 {
        self.at[axis].saturating_add(self.shape[axis])
    }
}

/// Returns the layout of a tensor of `shape` that consists of `chunks`. Fails with a reason if they
/// do not cover it exactly once. If there are several copies of a chunk, the first is used: ranks
/// with replicas may all have written theirs.
pub(super) fn assemble(shape: &[u64], mut chunks: Vec<Chunk>) -> Result<Layout, String> {
    let rank = shape.len();
    for chunk in &chunks {
        let fits = chunk.at.len() == rank
            && chunk.shape.len() == rank
            && (0..rank).all(|axis| {
                chunk.at[axis].checked_add(chunk.shape[axis]).is_some_and(|end| end <= shape[axis])
            });
        if !fits {
            return Err(format!(
                "its chunk of shape {:?} at {:?} is not inside its shape {shape:?}",
                chunk.shape, chunk.at
            ));
        }
    }
    if shape.contains(&0) {
        return Ok(Layout::Inline([].into()));
    }
    chunks.retain(|chunk| !chunk.shape.contains(&0));
    // The sort is stable, so the first of several copies remains.
    order::by(&mut chunks, |a, b| (&a.at, &a.shape).cmp(&(&b.at, &b.shape)));
    chunks.dedup_by(|b, a| a.at == b.at && a.shape == b.shape);
    let origin = vec![0; rank];
    split(&origin, shape, chunks, LEVELS)
}

/// Returns the layout of the part of `shape` at `at`. Recurses at most `levels` deep.
fn split(at: &[u64], shape: &[u64], chunks: Vec<Chunk>, levels: usize) -> Result<Layout, String> {
    let gap = || format!("its chunks leave a gap in the part of shape {shape:?} at {at:?}");
    let mut chunks = chunks;
    if chunks.len() <= 1 {
        let whole = chunks.pop().filter(|chunk| chunk.at == *at && chunk.shape == *shape);
        return whole.map(|chunk| chunk.layout).ok_or_else(gap);
    }
    let levels = levels.checked_sub(1).ok_or("its chunks are cut too irregularly")?;
    for axis in 0..shape.len() {
        order::by_key(&mut chunks, |chunk| chunk.at[axis]);
        let slabs = slabs(&chunks, axis);
        if slabs.len() < 2 {
            continue;
        }
        let mut parts = Vec::with_capacity(slabs.len());
        let mut start = at[axis];
        let mut rest = chunks.into_iter();
        for (count, first, end) in slabs {
            if first != start {
                return Err(gap());
            }
            let (mut at, mut shape) = (at.to_vec(), shape.to_vec());
            (at[axis], shape[axis]) = (start, end - start);
            let layout = split(&at, &shape, rest.by_ref().take(count).collect(), levels)?;
            parts.push(Part { shape, layout });
            start = end;
        }
        if at[axis].checked_add(shape[axis]) != Some(start) {
            return Err(gap());
        }
        return Ok(Layout::Concat(Concat { axis, parts }));
    }
    Err(format!("its chunks overlap in the part of shape {shape:?} at {at:?}"))
}

/// Splits chunks, sorted by start along `axis`, into slabs so that no chunk crosses a boundary.
/// Returns for each slab the number of chunks, the first element and the end.
fn slabs(chunks: &[Chunk], axis: usize) -> Vec<(usize, u64, u64)> {
    let mut slabs: Vec<(usize, u64, u64)> = Vec::new();
    for chunk in chunks {
        let (start, end) = (chunk.at[axis], chunk.end(axis));
        match slabs.last_mut() {
            Some((count, _, reach)) if start < *reach => {
                *count += 1;
                *reach = end.max(*reach);
            }
            _ => slabs.push((1, start, end)),
        }
    }
    slabs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(at: &[u64], shape: &[u64], byte: u8) -> Chunk {
        let len = shape.iter().product::<u64>() as usize;
        Chunk {
            at: at.to_vec(),
            shape: shape.to_vec(),
            layout: Layout::Inline(vec![byte; len].into()),
        }
    }

    fn bytes(shape: &[u64], layout: Layout) -> Vec<u8> {
        let tensor = statelens_checkpoint::Tensor::new(
            statelens_checkpoint::DType::U8,
            shape.to_vec(),
            layout,
        );
        let mut out = Vec::new();
        let files = statelens_checkpoint::FileSet::default();
        let mut put = |bytes: &[u8]| {
            out.extend_from_slice(bytes);
            Ok(())
        };
        let watch = &mut statelens_checkpoint::Unwatched;
        statelens_tensor::drain(&files, &tensor, 1 << 16, watch, &mut put).unwrap();
        out
    }

    #[test]
    fn assembles_a_grid_in_any_order() {
        let chunks = vec![
            chunk(&[2, 0], &[1, 3], 3),
            chunk(&[0, 3], &[2, 1], 2),
            chunk(&[2, 3], &[1, 1], 4),
            chunk(&[0, 0], &[2, 3], 1),
            chunk(&[0, 0], &[2, 3], 9),
        ];
        let layout = assemble(&[3, 4], chunks).unwrap();
        assert_eq!(bytes(&[3, 4], layout), [1, 1, 1, 2, 1, 1, 1, 2, 3, 3, 3, 4]);
    }

    #[test]
    fn assembles_columns_of_different_heights() {
        let chunks = vec![
            chunk(&[0, 0], &[1, 1], 1),
            chunk(&[1, 0], &[2, 1], 2),
            chunk(&[0, 1], &[2, 1], 3),
            chunk(&[2, 1], &[1, 1], 4),
        ];
        let layout = assemble(&[3, 2], chunks).unwrap();
        assert_eq!(bytes(&[3, 2], layout), [1, 3, 2, 3, 2, 4]);
    }

    #[test]
    fn reports_gaps_and_overlaps_of_chunks() {
        for (chunks, word) in [
            (vec![], "gap"),
            (vec![chunk(&[0, 0], &[2, 1], 0)], "gap"),
            (vec![chunk(&[0, 0], &[1, 2], 0), chunk(&[1, 0], &[1, 1], 0)], "gap"),
            (vec![chunk(&[0, 1], &[2, 1], 0), chunk(&[0, 0], &[1, 1], 0)], "gap"),
            (vec![chunk(&[0, 0], &[2, 2], 0), chunk(&[1, 0], &[1, 2], 0)], "overlap"),
            (vec![chunk(&[0, 0], &[3, 2], 0)], "inside"),
            (vec![chunk(&[u64::MAX, 0], &[0, 2], 0)], "inside"),
            (vec![chunk(&[0], &[2], 0)], "inside"),
        ] {
            let error = assemble(&[2, 2], chunks).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
        assert!(assemble(&[2, 0], vec![]).is_ok());
        assert!(assemble(&[], vec![chunk(&[], &[], 7)]).is_ok());
    }
}
