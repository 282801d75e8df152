//! Decides which tensors with shared memory are the same view, for writers that distinguish views.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::discriminant;

use statelens_checkpoint::{Layout, Strided, Tensor};

/// Returns whether two tensors with the same memory are the same view of it, and therefore have the
/// same elements.
pub(crate) fn same_view(one: &Tensor, other: &Tensor) -> bool {
    same_elements(one, other) && one.shape == other.shape && one.layout == other.layout
}

/// Returns whether the element types of two tensors are the same.
pub(crate) fn same_elements(one: &Tensor, other: &Tensor) -> bool {
    one.dtype == other.dtype
        && one.stored == other.stored
        && one.byte_order == other.byte_order
        && (one.conjugate, one.negate) == (other.conjugate, other.negate)
}

/// Returns a hash that is equal for the same views, and different for nearly all others. A small
/// file can refer to one storage a hundred thousand times; comparing all pairs of views would take
/// minutes.
pub(crate) fn fingerprint(tensor: &Tensor) -> u64 {
    let mut hasher = DefaultHasher::new();
    (discriminant(&tensor.dtype), discriminant(&tensor.stored)).hash(&mut hasher);
    (tensor.byte_order, tensor.conjugate, tensor.negate).hash(&mut hasher);
    tensor.shape.hash(&mut hasher);
    match &tensor.layout {
        Layout::Strided(Strided { storage, storage_len, offset, strides }) => {
            (storage_len, offset, strides).hash(&mut hasher);
            run(storage, &mut hasher);
        }
        layout => run(layout, &mut hasher),
    }
    hasher.finish()
}

/// Hashes the location of a run of bytes.
fn run(layout: &Layout, hasher: &mut DefaultHasher) {
    discriminant(layout).hash(hasher);
    match layout {
        Layout::Span(span) => span.hash(hasher),
        Layout::Packed(packed) => (packed.span, packed.skip, packed.len).hash(hasher),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use statelens_checkpoint::{DType, FileId, Packed, Packing, Span};

    use super::*;

    fn view(offset: u64, shape: Vec<u64>, strides: Vec<i64>) -> Tensor {
        let span = Span { file: FileId(0), offset: 64, len: 1 << 20 };
        let storage = Arc::new(Layout::Packed(Packed {
            span,
            packing: Packing::Deflate,
            skip: 0,
            len: 1 << 30,
        }));
        let layout = Layout::Strided(Strided { storage, storage_len: 1 << 30, offset, strides });
        Tensor::new(DType::F32, shape, layout)
    }

    #[test]
    fn fingerprint_depends_on_offset_shape_and_strides() {
        let mut views = vec![view(0, vec![2, 3], vec![3, 1]), view(0, vec![3, 2], vec![3, 1])];
        views.extend((1..1000).map(|offset| view(offset, vec![2, 3], vec![3, 1])));
        views.extend((4..1000).map(|stride| view(0, vec![2, 3], vec![stride, 1])));
        let distinct: HashSet<u64> = views.iter().map(fingerprint).collect();
        assert_eq!(distinct.len(), views.len());
        let again = view(7, vec![2, 3], vec![3, 1]);
        assert!(views.iter().any(|view| same_view(view, &again)));
        assert!(distinct.contains(&fingerprint(&again)));
        let conjugate = Tensor { conjugate: true, ..again };
        assert!(!distinct.contains(&fingerprint(&conjugate)));
    }
}
