//! Tensors that are cut into ranges of their elements in C order.

use std::sync::Arc;

use statelens_checkpoint::{Concat, Layout, Part, Strided, Tensor, contiguous_strides, numel};

use super::range;

/// A tensor as ranges of elements, in order, of tensors of one dimension.
#[derive(Debug, Default)]
pub(crate) struct FlatTensor {
    parts: Vec<(u64, Layout)>,
    numel: u64,
}

impl FlatTensor {
    /// Appends `len` elements of a tensor of one dimension from `start` on. Returns false if they
    /// are not inside.
    pub(crate) fn push(&mut self, tensor: &Tensor, start: u64, len: u64) -> bool {
        let (Some(layout), Some(numel)) = (range(tensor, start, len), self.numel.checked_add(len))
        else {
            return false;
        };
        if len > 0 {
            self.parts.push((len, layout));
            self.numel = numel;
        }
        true
    }

    /// Appends `len` elements that are missing.
    pub(crate) fn push_missing(&mut self, len: u64) {
        if let Some(numel) = self.numel.checked_add(len).filter(|_| len > 0) {
            self.parts.push((len, Layout::Missing("no file holds this part".into())));
            self.numel = numel;
        }
    }

    /// Returns the layout as a tensor of `shape`. `None` if there are fewer or more elements.
    pub(crate) fn layout(self, shape: &[u64], itemsize: u64) -> Option<Layout> {
        let total = numel(shape)?;
        if total != self.numel {
            return None;
        }
        if total == 0 {
            return Some(Layout::Inline([].into()));
        }
        if let [(_, layout @ Layout::Span(_))] = &self.parts[..] {
            return Some(layout.clone());
        }
        // Ranges of whole rows are boxes.
        let row = shape.get(1..).and_then(numel).filter(|row| *row > 0);
        if let Some(row) = row.filter(|row| self.parts.iter().all(|(len, _)| len % row == 0))
            && self.parts.iter().all(|(_, layout)| matches!(layout, Layout::Span(_)))
        {
            let part = |(len, layout): (u64, Layout)| {
                let mut shape = shape.to_vec();
                shape[0] = len / row;
                Part { shape, layout }
            };
            let parts = self.parts.into_iter().map(part).collect();
            return Some(Layout::Concat(Concat { axis: 0, parts }));
        }
        let part = |(len, layout)| Part { shape: vec![len], layout };
        let parts = self.parts.into_iter().map(part).collect();
        Some(Layout::Strided(Strided {
            storage: Arc::new(Layout::Concat(Concat { axis: 0, parts })),
            storage_len: total.checked_mul(itemsize)?,
            offset: 0,
            strides: contiguous_strides(shape)?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::read;
    use super::*;
    use statelens_checkpoint::DType;

    fn tensor(bytes: &[u8]) -> Tensor {
        Tensor::new(DType::U8, vec![bytes.len() as u64], Layout::Inline(bytes.into()))
    }

    #[test]
    fn ranges_that_end_inside_rows_are_joined() {
        let mut flat = FlatTensor::default();
        assert!(flat.push(&tensor(&[9, 1, 2, 3]), 1, 3));
        assert!(flat.push(&tensor(&[]), 0, 0));
        assert!(flat.push(&tensor(&[4, 5, 6, 9]), 0, 3));
        assert!(!flat.push(&tensor(&[4, 5]), 1, 2));
        let layout = flat.layout(&[2, 3], 1).unwrap();
        assert_eq!(read(&[2, 3], layout), [1, 2, 3, 4, 5, 6]);
        let mut short = FlatTensor::default();
        assert!(short.push(&tensor(&[1]), 0, 1));
        assert!(short.layout(&[2], 1).is_none());
    }
}
