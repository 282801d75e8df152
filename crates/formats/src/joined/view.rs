//! Parts of tensors that are stored whole.

use std::sync::Arc;

use statelens_checkpoint::{Layout, Span, Strided, Tensor, contiguous_strides, numel};

/// Returns the layout of the box of `shape` at `at` in a tensor. `None` if it is not inside, or if
/// the tensor is not stored as one run or view.
pub(crate) fn part(tensor: &Tensor, at: &[u64], shape: &[u64]) -> Option<Layout> {
    let inside = at.len() == tensor.shape.len()
        && shape.len() == at.len()
        && (0..at.len()).all(|axis| {
            at[axis].checked_add(shape[axis]).is_some_and(|end| end <= tensor.shape[axis])
        });
    if !inside {
        return None;
    }
    if *shape == *tensor.shape {
        return Some(tensor.layout.clone());
    }
    if shape.contains(&0) {
        return Some(Layout::Inline([].into()));
    }
    let view = match &tensor.layout {
        Layout::Strided(view) => view.clone(),
        storage => Strided {
            storage_len: tensor.nbytes()?,
            storage: Arc::new(storage.clone()),
            offset: 0,
            strides: contiguous_strides(&tensor.shape)?,
        },
    };
    let mut offset = i64::try_from(view.offset).ok()?;
    for (at, stride) in at.iter().zip(&view.strides) {
        offset = offset.checked_add(i64::try_from(*at).ok()?.checked_mul(*stride)?)?;
    }
    let offset = u64::try_from(offset).ok()?;
    let (item, len) = (tensor.stored.itemsize(), view.storage_len);
    statelens_pickle::view(&view.storage, len, item, offset, shape, &view.strides).ok()
}

/// Returns the layout of `len` elements from `start` on, in C order, of a tensor of one dimension.
/// `None` if they are not inside.
pub(crate) fn range(tensor: &Tensor, start: u64, len: u64) -> Option<Layout> {
    if let Layout::Span(span) = tensor.layout {
        let item = tensor.stored.itemsize();
        let total = numel(&tensor.shape)?;
        start.checked_add(len).filter(|end| *end <= total)?;
        let offset = span.offset.checked_add(start.checked_mul(item)?)?;
        return Some(Layout::Span(Span { file: span.file, offset, len: len.checked_mul(item)? }));
    }
    part(tensor, &[start], &[len])
}

#[cfg(test)]
mod tests {
    use super::super::tests::read;
    use super::*;
    use statelens_checkpoint::DType;

    #[test]
    fn parts_of_views_are_views() {
        let bytes: Vec<u8> = (0..24).collect();
        let storage = Layout::Inline(bytes.into());
        let dense = Tensor::new(DType::U8, vec![4, 6], storage.clone());
        let layout = part(&dense, &[1, 2], &[2, 3]).unwrap();
        assert_eq!(read(&[2, 3], layout), [8, 9, 10, 14, 15, 16]);
        let transposed = Layout::Strided(Strided {
            storage: Arc::new(storage),
            storage_len: 24,
            offset: 0,
            strides: vec![1, 6],
        });
        let transposed = Tensor::new(DType::U8, vec![6, 4], transposed);
        let layout = part(&transposed, &[2, 1], &[3, 2]).unwrap();
        assert_eq!(read(&[3, 2], layout), [8, 14, 9, 15, 10, 16]);
        assert!(part(&dense, &[3, 0], &[2, 6]).is_none());
        assert!(part(&dense, &[u64::MAX, 0], &[2, 6]).is_none());
    }
}
