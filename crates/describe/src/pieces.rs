//! The pieces of a tensor that is stored in several places.

use std::borrow::Cow;

use statelens_checkpoint::{Checkpoint, Layout, Span, Tensor, Text, numel, rank_in};

/// A stored piece of a tensor, as its layout describes it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct StoredPiece {
    /// The index of its first element in the tensor, per dimension; of a range of elements in C
    /// order, one index.
    pub at: Vec<u64>,
    /// Its shape; of a range, the number of elements.
    pub shape: Vec<u64>,
    /// The name of its file; empty if it has no bytes.
    pub file: String,
    /// The rank in the name of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u64>,
    /// Offset of its bytes, or of the archive or stream with them.
    pub offset: u64,
    /// Number of these bytes.
    pub bytes: u64,
}

/// Returns the pieces of a tensor in the order of its elements; a tensor in one piece has one.
/// Reads nothing.
pub fn pieces(checkpoint: &Checkpoint, tensor: &Tensor) -> Vec<StoredPiece> {
    let mut found = Vec::new();
    each_piece(tensor, &mut |at, shape, layout| {
        let span = span_of(layout);
        let file = span.map_or("", |span| checkpoint.files.name(span.file)).to_owned();
        let rank = rank_in(file.rsplit('/').next().unwrap_or_default());
        let (offset, bytes) = span.map_or((0, 0), |span| (span.offset, span.len));
        found.push(StoredPiece { at, shape, file, rank, offset, bytes });
    });
    found
}

/// Returns a tensor whose pieces are those that exist if others are missing, by its flat key; else
/// the tensor itself. The others are [`Layout::Missing`].
pub fn in_pieces<'a>(checkpoint: &Checkpoint, key: &Text, tensor: &'a Tensor) -> Cow<'a, Tensor> {
    match (&tensor.layout, checkpoint.partial.get(key)) {
        (Layout::Missing(_), Some(layout)) => {
            Cow::Owned(Tensor { layout: layout.clone(), ..tensor.clone() })
        }
        _ => Cow::Borrowed(tensor),
    }
}

/// Returns piece `index` of [`pieces`] as a tensor of its own.
pub fn piece(tensor: &Tensor, index: usize) -> Option<Tensor> {
    let (mut count, mut found) = (0, None);
    each_piece(tensor, &mut |_, shape, layout| {
        if count == index {
            found = Some(Tensor { shape, layout: layout.clone(), storage: None, ..tensor.clone() });
        }
        count += 1;
    });
    found
}

/// Receives the place, the shape and the layout of a piece.
type PieceReceiver<'a> = dyn FnMut(Vec<u64>, Vec<u64>, &Layout) + 'a;

/// Calls `found` with each piece, in the order of the elements.
fn each_piece(tensor: &Tensor, found: &mut PieceReceiver<'_>) {
    let mut open = vec![(vec![0u64; tensor.shape.len()], tensor.shape.clone(), &tensor.layout)];
    while let Some((at, shape, layout)) = open.pop() {
        match layout {
            Layout::Concat(concat) if concat.axis < at.len() => {
                let mut inner = Vec::new();
                let mut start = at[concat.axis];
                for part in &concat.parts {
                    let mut at = at.clone();
                    at[concat.axis] = start;
                    start = start.saturating_add(part.shape.get(concat.axis).copied().unwrap_or(0));
                    inner.push((at, part.shape.clone(), &part.layout));
                }
                open.extend(inner.into_iter().rev());
            }
            // Ranges of elements in C order.
            Layout::Strided(strided) if is_ranges(&strided.storage) => {
                if let Layout::Concat(concat) = &*strided.storage {
                    let mut inner = Vec::new();
                    let mut start = 0u64;
                    for part in &concat.parts {
                        let len = numel(&part.shape).unwrap_or(0);
                        inner.push((vec![start], vec![len], &part.layout));
                        start = start.saturating_add(len);
                    }
                    open.extend(inner.into_iter().rev());
                }
            }
            Layout::Strided(strided) if matches!(*strided.storage, Layout::Concat(_)) => {
                // A row of a tensor with several layers: its storage is the part that has it.
                if let Layout::Concat(concat) = &*strided.storage {
                    for part in concat.parts.iter().rev() {
                        open.push((vec![0; part.shape.len()], part.shape.clone(), &part.layout));
                    }
                }
            }
            layout => found(at, shape, layout),
        }
    }
}

/// Returns whether a storage consists of ranges of elements.
fn is_ranges(storage: &Layout) -> bool {
    let Layout::Concat(concat) = storage else { return false };
    concat.parts.iter().all(|part| part.shape.len() == 1)
}

/// Returns the range of a file that holds the elements of a layout in one piece.
fn span_of(layout: &Layout) -> Option<Span> {
    match layout {
        Layout::Span(span) => Some(*span),
        Layout::Packed(packed) => Some(packed.span),
        Layout::Deferred(deferred) => Some(deferred.span()),
        Layout::Strided(strided) => span_of(&strided.storage),
        _ => None,
    }
}
