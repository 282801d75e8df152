//! Slices of tensors: the positions of their elements, and the slice as a tensor of its own.

use std::ops::Range;

use statelens_checkpoint::{DType, Error, FileSet, Layout, Result, Tensor};

use crate::{Slice, Taken, elements};

/// Maximum number of bytes that are read at once to cover several elements.
const NEAR: u64 = 32 << 20;
/// Maximum number of bytes between two elements that are read together: a page of values, of which
/// there are 60, then takes less than 64 MB.
const GAP: u64 = 1 << 20;
/// Maximum number of elements that are examined for others that lie nearby.
const MAX_AHEAD: u64 = 1 << 20;

/// Returns a slice as a tensor: a view of the same bytes. Quantised blocks can't be cut by a view;
/// their decoded elements are returned instead, if they take at most `most` bytes.
pub fn sliced(files: &FileSet, tensor: &Tensor, slice: &Slice, most: u64) -> Result<Tensor> {
    if !matches!(tensor.stored, DType::Blocks(_)) {
        return Ok(Tensor { storage: None, ..slice.of(tensor)? });
    }
    let places = ElementPlaces::new(slice, &tensor.shape)?;
    let bytes = places.count().saturating_mul(tensor.dtype.itemsize());
    if bytes > most {
        return Err(Error::refused(format!("a slice of {bytes} bytes of quantised blocks"))
            .advice("Take less of it, or the whole tensor."));
    }
    let mut data = Vec::new();
    places.each(files, tensor, 0..u64::MAX, |_, element| {
        data.extend_from_slice(element);
        Ok::<(), Error>(())
    })?;
    let shape = places.shape().to_vec();
    Ok(Tensor::new(tensor.dtype.clone(), shape, Layout::Inline(data.into())))
}

/// The positions of the elements of a slice in a tensor of some shape, in C order of both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElementPlaces {
    /// For each dimension of the tensor.
    axes: Vec<Taken>,
    /// Elements from one index of each dimension to the next.
    strides: Vec<u64>,
    /// Shape of the slice: a single index removes a dimension.
    shape: Vec<u64>,
}

impl ElementPlaces {
    /// Creates the positions for a slice of a tensor of this shape. Fails as [`Slice::taken`] does.
    pub fn new(slice: &Slice, shape: &[u64]) -> Result<Self> {
        let axes = slice.taken(shape)?;
        let mut strides = vec![1u64; shape.len()];
        for at in (1..shape.len()).rev() {
            strides[at - 1] = strides[at].saturating_mul(shape[at]);
        }
        let shape = axes.iter().filter(|axis| axis.kept).map(|axis| axis.count).collect();
        Ok(Self { axes, strides, shape })
    }

    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    pub fn count(&self) -> u64 {
        self.axes.iter().map(|axis| axis.count).fold(1, u64::saturating_mul)
    }

    /// Returns the range of positions if the slice is contiguous and in order.
    pub fn run(&self) -> Option<Range<u64>> {
        let mut next = 1u64;
        for (axis, stride) in self.axes.iter().zip(&self.strides).rev() {
            if axis.count != 1 && (axis.step != 1 || *stride != next) {
                return None;
            }
            next = next.checked_mul(axis.count)?;
        }
        let first = self.place(0);
        (next > 0).then(|| first..first.saturating_add(next))
    }

    /// Returns the position in the tensor of an element of the slice.
    pub fn place(&self, mut number: u64) -> u64 {
        let mut place = 0u64;
        for (axis, stride) in self.axes.iter().zip(&self.strides).rev() {
            let index = number % axis.count.max(1);
            number /= axis.count.max(1);
            let moved = i128::from(axis.first) + i128::from(index) * i128::from(axis.step);
            let moved = u64::try_from(moved).unwrap_or(0);
            place = place.saturating_add(moved.saturating_mul(*stride));
        }
        place
    }

    /// Passes on the bytes of the elements `range`, one by one, with their indices in the slice.
    pub fn each<E: From<Error>>(
        &self,
        files: &FileSet,
        tensor: &Tensor,
        range: Range<u64>,
        mut out: impl FnMut(u64, &[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let item = tensor.dtype.itemsize().max(1);
        let end = range.end.min(self.count());
        // Nearby elements are read together: rows of a block, a column of a matrix.
        let mut near = (0, 0, Vec::new());
        for number in range.start..end {
            let at = self.place(number);
            let (start, behind, _) = &near;
            if at < *start || at >= *behind {
                let (start, behind) = self.near(number, end, (NEAR / item, GAP / item));
                near = (start, behind, elements(files, tensor, start..behind)?);
            }
            let (start, _, bytes) = &near;
            let from = usize::try_from((at - start) * item).unwrap_or(usize::MAX);
            let element = bytes.get(from..from.saturating_add(item as usize)).unwrap_or_default();
            out(number, element)?;
        }
        Ok(())
    }

    /// Returns the range of positions that covers the elements from `number` on that lie within
    /// `room` of each other, each within `gap` of the earlier ones.
    fn near(&self, number: u64, end: u64, (room, gap): (u64, u64)) -> (u64, u64) {
        let first = self.place(number);
        let (mut start, mut behind) = (first, first + 1);
        for number in number + 1..end.min(number.saturating_add(MAX_AHEAD)) {
            let at = self.place(number);
            let (low, high) = (start.min(at), behind.max(at + 1));
            let added = (start - low).max(high - behind);
            if high - low > room.max(1) || added > gap.max(1) {
                break;
            }
            (start, behind) = (low, high);
        }
        (start, behind)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use statelens_checkpoint::{FileId, ReadAt, Span};

    use super::*;

    fn of(text: &str, shape: &[u64]) -> ElementPlaces {
        ElementPlaces::new(&text.parse().unwrap(), shape).unwrap()
    }

    #[test]
    fn locates_elements_in_slice_order() {
        for (text, shape, wanted, left) in [
            ("0:2, :2", &[3u64, 4][..], &[0u64, 1, 4, 5][..], &[2u64, 2][..]),
            ("..., -1", &[2, 2, 2], &[1, 3, 5, 7], &[2, 2]),
            ("3:0:-2", &[4], &[3, 1], &[2]),
            ("7:", &[5], &[], &[0]),
            ("0,0", &[1, 1], &[0], &[]),
        ] {
            let places = of(text, shape);
            let found: Vec<u64> = (0..places.count()).map(|number| places.place(number)).collect();
            assert_eq!((&*found, places.shape()), (wanted, left), "[{text}] {shape:?}");
        }
    }

    /// A file of zeros that counts reads and bytes.
    #[derive(Debug, Clone, Default)]
    struct CountedReads(Arc<Mutex<(u64, u64)>>);

    impl ReadAt for CountedReads {
        fn len(&self) -> u64 {
            1 << 40
        }

        fn read_at(&self, _: u64, buffer: &mut [u8]) -> Result<()> {
            let mut counts = self.0.lock().unwrap();
            *counts = (counts.0 + 1, counts.1 + buffer.len() as u64);
            buffer.fill(0);
            Ok(())
        }
    }

    /// Returns the reads and the bytes that the first `count` elements of a slice take.
    fn reads(slice: &str, shape: &[u64], count: u64) -> (u64, u64) {
        let source = CountedReads::default();
        let files = FileSet::single("zeros", source.clone());
        let len = shape.iter().product::<u64>() * 4;
        let span = Span { file: FileId(0), offset: 0, len };
        let tensor = Tensor::new(DType::F32, shape.to_vec(), Layout::Span(span));
        let mut found = 0;
        let mut out = |_: u64, _: &[u8]| {
            found += 1;
            Ok::<(), Error>(())
        };
        of(slice, shape).each(&files, &tensor, 0..count, &mut out).unwrap();
        assert_eq!(found, count);
        *source.0.lock().unwrap()
    }

    #[test]
    fn elements_far_apart_are_read_alone() {
        // Rows of 16 MB.
        let (far, bytes) = reads(":, 0", &[60, 1 << 22], 60);
        assert!(bytes <= 60 * (64 << 10), "{far} reads of {bytes} bytes");
        // Rows of 4 kB.
        let (near, bytes) = reads(":, 0", &[60, 1 << 10], 60);
        assert!(near <= 2 && bytes < 60 << 12, "{near} reads of {bytes} bytes");
        // The most that 60 values may take.
        let (_, bytes) = reads(":, 0", &[60, 1 << 18], 60);
        assert!(bytes < 64_000_000, "{bytes} bytes");
    }

    #[test]
    fn recognises_contiguous_slices() {
        for (text, shape, run) in [
            ("", &[3u64, 4][..], Some(0..12)),
            ("1:3", &[3, 4], Some(4..12)),
            ("2, 1:3", &[3, 4], Some(9..11)),
            ("1, 0:2, :", &[2, 3, 4], Some(12..20)),
            ("0:2, 1", &[3, 1], None),
            (":, 1:3", &[3, 4], None),
            ("::2", &[4], None),
            ("::-1", &[4], None),
            ("3:", &[3, 4], None),
            (":, 0", &[3, 1], Some(0..3)),
            ("1, 2", &[3, 4], Some(6..7)),
        ] {
            let slice: Slice = text.parse().unwrap();
            let places = ElementPlaces::new(&slice, shape).ok();
            assert_eq!(places.and_then(|places| places.run()), run, "[{text}] {shape:?}");
        }
    }
}
