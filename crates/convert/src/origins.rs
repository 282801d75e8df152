//! Traces the elements of a tensor to the tensors of another checkpoint from which they were moved.

use std::sync::Arc;

use statelens_checkpoint::{Layout, Packed, Span, Tensor, TensorId, order};

/// The locations of tensors, used to recognise them in data made from them.
#[derive(Debug)]
pub struct Origins {
    /// Sorted by start.
    places: Vec<(FileSpan, TensorId)>,
}

/// Start and end of a range: the file in the upper bits, the offset in the lower ones.
type FileSpan = (u64, u64);

/// Bits of an offset in a file.
const BITS: u32 = 48;

impl Origins {
    /// Records the tensors whose layout is a single range of bytes that belongs to them alone.
    pub fn of<'t>(tensors: impl Iterator<Item = (TensorId, &'t Tensor)>) -> Self {
        let whole = tensors.filter_map(|(id, tensor)| Some((place(&tensor.layout)?, id)));
        let mut places: Vec<(FileSpan, TensorId)> = whole.collect();
        order::by_key(&mut places, |((start, _), _)| *start);
        Self { places }
    }

    /// Returns the tensors that hold all elements of a layout, which may be sliced, transposed and
    /// joined; `None` if some are computed, or belong to none of the tensors.
    pub fn trace(&self, layout: &Layout) -> Option<Vec<TensorId>> {
        let mut found = Vec::new();
        let mut open = vec![layout];
        while let Some(layout) = open.pop() {
            match layout {
                Layout::Strided(strided) => open.push(&strided.storage),
                Layout::Concat(concat) => open.extend(concat.parts.iter().map(|part| &part.layout)),
                layout => found.push(self.around(place(layout)?)?),
            }
        }
        Some(found)
    }

    /// Returns the tensor that contains a range.
    fn around(&self, (start, end): FileSpan) -> Option<TensorId> {
        let after = self.places.partition_point(|((from, _), _)| *from <= start);
        let ((_, to), id) = *self.places.get(after.checked_sub(1)?)?;
        (end <= to).then_some(id)
    }
}

/// Returns the location of a layout: its place in a file, or for chunks the address of the table,
/// which is unique.
fn place(layout: &Layout) -> Option<FileSpan> {
    let (file, offset, len) = match layout {
        Layout::Span(Span { file, offset, len })
        | Layout::Packed(Packed { span: Span { file, offset, len }, .. }) => {
            (u64::from(file.0), *offset, *len)
        }
        Layout::Chunked(chunked) => {
            (u64::MAX >> BITS, Arc::as_ptr(&chunked.chunks).cast::<()>() as u64, 1)
        }
        _ => return None,
    };
    let fits = file >> (u64::BITS - BITS) == 0 && offset.checked_add(len)? >> BITS == 0;
    let start = file << BITS | offset;
    fits.then_some((start, start + len))
}

#[cfg(test)]
mod tests {
    use statelens_checkpoint::{Computed, Concat, DType, FileId, Part, Strided};

    use super::*;

    fn span(file: u32, offset: u64, len: u64) -> Layout {
        Layout::Span(Span { file: FileId(file), offset, len })
    }

    #[test]
    fn traces_moved_but_not_computed_tensors() {
        let tensor = |layout| Tensor::new(DType::F32, vec![4], layout);
        let all = [tensor(span(0, 16, 16)), tensor(span(0, 0, 16)), tensor(span(1, 0, 16))];
        let ids = (0..).map(TensorId);
        let origins = Origins::of(ids.zip(&all));
        let trace = |layout: &Layout| -> Option<Vec<u32>> {
            origins.trace(layout).map(|found| found.iter().map(|id| id.0).collect())
        };
        assert_eq!(trace(&span(0, 16, 16)), Some(vec![0]));
        // A part of one tensor, and more than one.
        assert_eq!(trace(&span(0, 8, 8)), Some(vec![1]));
        assert_eq!(trace(&span(0, 8, 16)), None);
        assert_eq!((trace(&span(1, 16, 4)), trace(&span(2, 0, 4))), (None, None));
        let view = Layout::Strided(Strided {
            storage: Arc::new(span(1, 0, 16)),
            storage_len: 16,
            offset: 1,
            strides: vec![-1],
        });
        let parts = [view, span(0, 4, 4)].map(|layout| Part { shape: vec![1], layout });
        let joined = Layout::Concat(Concat { axis: 0, parts: parts.to_vec() });
        assert_eq!(trace(&joined), Some(vec![1, 2]));
        let of = all[0].clone();
        let computed = Computed { of, steps: Vec::new(), product: None };
        assert_eq!(trace(&Layout::Computed(Arc::new(computed))), None);
        assert_eq!(trace(&Layout::Fill([0; 4].into())), None);
    }
}
