//! Nests boxes that cover a tensor as concatenations along one axis after another.

use statelens_checkpoint::{Concat, Layout, Part, order};

use super::{Fault, Piece};

/// The maximum nesting of concatenations: one level for each partitioned dimension, and two more
/// than a grid needs, for irregular partitions.
const LEVELS: usize = 6;

/// Returns the layout of a tensor of `shape` that consists of these pieces, all inside of it and
/// none without elements. Fails if they do not cover it exactly once.
pub(super) fn nest(shape: &[u64], pieces: Vec<Piece>) -> Result<Layout, Fault> {
    split(&vec![0; shape.len()], shape, pieces, LEVELS)
}

/// Returns the layout of the part of `shape` at `at`. Recurses at most `levels` deep.
fn split(
    at: &[u64],
    shape: &[u64],
    mut pieces: Vec<Piece>,
    levels: usize,
) -> Result<Layout, Fault> {
    let gap = |at: &[u64], shape: &[u64]| Fault::Gap { at: at.to_vec(), shape: shape.to_vec() };
    if pieces.len() <= 1 {
        let Some(piece) = pieces.pop() else { return Err(gap(at, shape)) };
        if piece.at == *at && piece.shape == *shape {
            return Ok(piece.layout);
        }
        return Err(gap_next_to(at, shape, &piece));
    }
    let levels = levels.checked_sub(1).ok_or(Fault::Irregular)?;
    for axis in 0..shape.len() {
        order::by_key(&mut pieces, |piece| piece.at[axis]);
        let slabs = slabs(&pieces, axis);
        let [.., (_, _, last)] = slabs[..] else { continue };
        let end = at[axis].saturating_add(shape[axis]);
        let between = |from: u64, to: u64| {
            let (mut at, mut shape) = (at.to_vec(), shape.to_vec());
            (at[axis], shape[axis]) = (from, to - from);
            (at, shape)
        };
        // A part that no piece reaches, also before, between or after slabs.
        let (mut start, mut hole) = (at[axis], None);
        for (_, first, reach) in &slabs {
            hole = hole.or((*first > start).then_some((start, *first)));
            start = *reach;
        }
        hole = hole.or((last < end).then_some((last, end)));
        if let Some((from, to)) = hole {
            let (at, shape) = between(from, to);
            return Err(overlap(&pieces).unwrap_or(Fault::Gap { at, shape }));
        }
        if slabs.len() < 2 {
            continue;
        }
        let mut parts = Vec::with_capacity(slabs.len());
        let mut rest = pieces.into_iter();
        for (count, first, reach) in slabs {
            let (at, shape) = between(first, reach);
            let layout = split(&at, &shape, rest.by_ref().take(count).collect(), levels)?;
            parts.push(Part { shape, layout });
        }
        return Ok(Layout::Concat(Concat { axis, parts }));
    }
    Err(overlap(&pieces).unwrap_or(Fault::Irregular))
}

/// Returns the fault for a single piece that does not fill the part at `at`: the region next to it.
fn gap_next_to(at: &[u64], shape: &[u64], piece: &Piece) -> Fault {
    for axis in 0..shape.len() {
        let end = at[axis].saturating_add(shape[axis]);
        let (from, to) = match piece.at[axis] > at[axis] {
            true => (at[axis], piece.at[axis]),
            false => (piece.end(axis), end),
        };
        if from < to {
            let (mut at, mut shape) = (at.to_vec(), shape.to_vec());
            (at[axis], shape[axis]) = (from, to - from);
            return Fault::Gap { at, shape };
        }
    }
    Fault::Gap { at: at.to_vec(), shape: shape.to_vec() }
}

/// Splits pieces, sorted by start along `axis`, into slabs so that no piece crosses a boundary.
/// Returns for each slab the number of pieces, the first element and the end.
fn slabs(pieces: &[Piece], axis: usize) -> Vec<(usize, u64, u64)> {
    let mut slabs: Vec<(usize, u64, u64)> = Vec::new();
    for piece in pieces {
        let (start, end) = (piece.at[axis], piece.end(axis));
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

/// The maximum number of pairs of pieces that are compared.
const MAX_PAIRS: usize = 1 << 18;

/// Returns the fault for the first two pieces that overlap.
fn overlap(pieces: &[Piece]) -> Option<Fault> {
    let pairs = pieces
        .iter()
        .enumerate()
        .flat_map(|(index, one)| pieces[index + 1..].iter().map(move |other| (one, other)));
    for (one, other) in pairs.take(MAX_PAIRS) {
        let common = (0..one.at.len()).map(|axis| {
            let from = one.at[axis].max(other.at[axis]);
            (from, one.end(axis).min(other.end(axis)).saturating_sub(from))
        });
        let (at, shape): (Vec<u64>, Vec<u64>) = common.unzip();
        if !shape.contains(&0) {
            let files = [one.file.min(other.file), one.file.max(other.file)];
            return Some(Fault::Overlap { files, at, shape });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::tests::{bytes, joined, piece};

    #[test]
    fn assembles_a_grid_in_any_order() {
        let pieces = vec![
            piece(&[2, 0], &[1, 3], 3),
            piece(&[0, 3], &[2, 1], 2),
            piece(&[2, 3], &[1, 1], 4),
            piece(&[0, 0], &[2, 3], 1),
        ];
        assert_eq!(bytes(&[3, 4], pieces).unwrap(), [1, 1, 1, 2, 1, 1, 1, 2, 3, 3, 3, 4]);
    }

    #[test]
    fn assembles_columns_of_different_heights() {
        let pieces = vec![
            piece(&[0, 0], &[1, 1], 1),
            piece(&[1, 0], &[2, 1], 2),
            piece(&[0, 1], &[2, 1], 3),
            piece(&[2, 1], &[1, 1], 4),
        ];
        assert_eq!(bytes(&[3, 2], pieces).unwrap(), [1, 3, 2, 3, 2, 4]);
    }

    #[test]
    fn reports_gaps_and_overlaps_of_pieces() {
        for (pieces, text) in [
            (vec![], "no piece holds its part of shape [2, 2] at [0, 0]"),
            (vec![piece(&[0, 0], &[2, 1], 0)], "no piece holds its part of shape [2, 1] at [0, 1]"),
            (
                vec![piece(&[0, 0], &[1, 2], 0), piece(&[1, 0], &[1, 1], 1)],
                "no piece holds its part of shape [1, 1] at [1, 1]",
            ),
            (
                vec![piece(&[0, 1], &[2, 1], 0), piece(&[0, 0], &[1, 1], 1)],
                "no piece holds its part of shape [1, 1] at [1, 0]",
            ),
            (
                vec![piece(&[0, 0], &[2, 2], 0), piece(&[1, 0], &[1, 2], 1)],
                "its pieces in f0 and f1 overlap in the part of shape [1, 2] at [1, 0]",
            ),
            (vec![piece(&[0, 0], &[3, 2], 0)], "is not inside its shape [2, 2]"),
            (vec![piece(&[u64::MAX, 0], &[0, 2], 0)], "is not inside"),
            (vec![piece(&[0], &[2], 0)], "is not inside"),
        ] {
            let error = joined(&[2, 2], pieces).unwrap_err();
            assert!(error.contains(text), "{error}");
        }
        assert!(joined(&[2, 0], vec![]).is_ok());
        assert!(joined(&[], vec![piece(&[], &[], 7)]).is_ok());
    }

    /// Five rectangles around a centre can't be split along one line.
    #[test]
    fn pinwheels_are_too_irregular() {
        let pieces = vec![
            piece(&[0, 0], &[1, 2], 1),
            piece(&[0, 2], &[2, 1], 2),
            piece(&[2, 1], &[1, 2], 3),
            piece(&[1, 0], &[2, 1], 4),
            piece(&[1, 1], &[1, 1], 5),
        ];
        assert!(joined(&[3, 3], pieces).unwrap_err().contains("too irregularly"));
    }
}
