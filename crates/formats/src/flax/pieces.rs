//! Joins the flat chunks of an array: splits it into boxes that each lie within one chunk, and
//! concatenates these along the axes.

use statelens_checkpoint::{Concat, Layout, Part, Span};

/// The maximum rank of a chunked array, which is also the nesting of concatenations.
pub(super) const MAX_DIMENSIONS: usize = 7;

/// Returns the layout of an array of `shape` whose elements of `itemsize` bytes are stored
/// consecutively in `pieces`. Returns `None` if the number of elements is wrong, or a chunk ends
/// within an element.
pub(super) fn join(shape: &[u64], itemsize: u64, pieces: &[Span]) -> Option<Layout> {
    if shape.len() > MAX_DIMENSIONS || itemsize == 0 {
        return None;
    }
    // The index of the first element of each chunk, and the total number of elements.
    let mut starts = vec![0u64];
    for piece in pieces {
        if !piece.len.is_multiple_of(itemsize) {
            return None;
        }
        starts.push(starts.last()?.checked_add(piece.len / itemsize)?);
    }
    let count = shape.iter().try_fold(1u64, |count, dim| count.checked_mul(*dim))?;
    if *starts.last()? != count {
        return None;
    }
    let pieces = ArrayPieces { pieces, starts, itemsize };
    match pieces.span(0, count) {
        Some(span) => Some(Layout::Span(span)),
        None => pieces.concat(shape, 0, 0),
    }
}

struct ArrayPieces<'a> {
    pieces: &'a [Span],
    starts: Vec<u64>,
    itemsize: u64,
}

impl ArrayPieces<'_> {
    /// Returns the chunk that an element is in; never an empty chunk.
    fn piece(&self, element: u64) -> usize {
        self.starts.partition_point(|start| *start <= element).saturating_sub(1)
    }

    /// Returns the span of these elements if they are all in one chunk.
    fn span(&self, start: u64, count: u64) -> Option<Span> {
        let piece = self.piece(start);
        let (first, end) = (*self.starts.get(piece)?, *self.starts.get(piece + 1)?);
        if start + count > end {
            return None;
        }
        let Span { file, offset, .. } = *self.pieces.get(piece)?;
        let offset = offset + (start - first) * self.itemsize;
        Some(Span { file, offset, len: count * self.itemsize })
    }

    /// Returns the layout of the elements from `start` on that have a fixed index in each dimension
    /// before `axis`, and cover `axis` and all later dimensions. Recurses once per dimension.
    fn concat(&self, shape: &[u64], axis: usize, start: u64) -> Option<Layout> {
        let (dim, below) = (*shape.get(axis)?, shape.get(axis + 1..)?);
        let unit: u64 = below.iter().product();
        let part = |indices: u64, layout: Layout| {
            let shape = std::iter::repeat_n(1, axis).chain([indices]).chain(below.iter().copied());
            Part { shape: shape.collect(), layout }
        };
        let mut parts = Vec::new();
        let mut index = 0;
        while index < dim {
            let at = start + index * unit;
            let end = *self.starts.get(self.piece(at) + 1)?;
            let fit = ((end - at) / unit).min(dim - index);
            if fit == 0 {
                // This index crosses the end of a chunk.
                parts.push(part(1, self.concat(shape, axis + 1, at)?));
                index += 1;
            } else {
                parts.push(part(fit, Layout::Span(self.span(at, fit * unit)?)));
                index += fit;
            }
        }
        Some(Layout::Concat(Concat { axis, parts }))
    }
}

#[cfg(test)]
mod tests {
    use statelens_checkpoint::{DType, FileSet, Memory, Tensor};

    use super::*;

    #[test]
    fn pieces_of_any_size_join_to_the_same_array() {
        let bytes: Vec<u8> = (0..120).collect();
        let files = FileSet::single("x", Memory::from(bytes.clone()));
        let file = files.main().unwrap();
        let shapes: [&[u64]; 5] = [&[60], &[4, 15], &[5, 4, 3], &[1, 60], &[2, 3, 2, 5]];
        for shape in shapes {
            for cuts in
                [vec![60], vec![1, 59], vec![7, 20, 0, 33], vec![14, 15, 16, 15], vec![1; 60]]
            {
                let mut offset = 0;
                let pieces: Vec<Span> = cuts
                    .iter()
                    .map(|count| {
                        let span = Span { file, offset, len: count * 2 };
                        offset += count * 2;
                        span
                    })
                    .collect();
                let layout = join(shape, 2, &pieces).unwrap();
                let tensor = Tensor::new(DType::I16, shape.to_vec(), layout);
                assert_eq!(statelens_tensor::elements(&files, &tensor, 0..60).unwrap(), bytes);
            }
        }
        let short = [Span { file, offset: 0, len: 118 }];
        assert!(join(&[60], 2, &short).is_none());
        assert!(join(&[59], 2, &[Span { file, offset: 0, len: 117 }]).is_none());
        assert!(join(&[0], 2, &[]).is_some_and(|layout| matches!(layout, Layout::Concat(_))));
    }
}
