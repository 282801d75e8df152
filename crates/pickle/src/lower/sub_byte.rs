//! Quantised tensors of two or four bits per element. Torch packs them in C order without gaps
//! between rows, the first element in the lowest bits; `quint4x2` and `quint2x4` of
//! `c10/core/ScalarType.h`. Their logical bytes have one byte per element.

use std::sync::Arc;

use statelens_checkpoint::{
    Chunk, Chunked, Chunks, DType, Error, FileSet, Layout, Result, Span, contiguous_strides, numel,
    try_alloc,
};

use crate::Storage;

/// Elements of a chunk, if the shape allows it.
const CHUNK: u64 = 1 << 20;

/// Returns the number of elements in a byte of a storage of this dtype: 1 for all but two.
pub(crate) fn per_byte(dtype: Option<&DType>) -> u64 {
    match dtype {
        Some(DType::QUInt4x2) => 2,
        Some(DType::QUInt2x4) => 4,
        _ => 1,
    }
}

/// Returns the layout of a tensor with `per_byte` elements in a byte, `None` if it is not a dense
/// tensor that begins with its storage, or is compressed. The error is a message.
pub(super) fn layout(
    storage: &Storage,
    per_byte: u64,
    offset: u64,
    shape: &[u64],
    strides: &[i64],
) -> Result<Option<Layout>, String> {
    let count = numel(shape).filter(|count| i64::try_from(*count).is_ok());
    let count = count.ok_or("Its size does not fit 64 bits")?;
    if count == 0 {
        return Ok(Some(Layout::Inline([].into())));
    }
    if count.div_ceil(per_byte) > storage.len {
        return Err(format!(
            "Its {count} elements, {per_byte} in a byte, do not fit into a storage of {} bytes",
            storage.len
        ));
    }
    if offset != 0 || contiguous_strides(shape).as_deref() != Some(strides) || shape.is_empty() {
        return Ok(None);
    }
    match &storage.layout {
        Layout::Span(span) => {
            let chunk = chunk_of(shape);
            let packed =
                Packed { span: *span, per_byte, shape: shape.to_vec(), chunk: chunk.clone() };
            Ok(Some(Layout::Chunked(Chunked { shape: chunk, chunks: Arc::new(packed) })))
        }
        Layout::Missing(reason) => Ok(Some(Layout::Missing(reason.clone()))),
        _ => Ok(None),
    }
}

/// Returns the shape of the chunks: whole rows of about [`CHUNK`] elements, so that the elements of
/// a chunk follow each other.
fn chunk_of(shape: &[u64]) -> Vec<u64> {
    let mut chunk = vec![1; shape.len()];
    let mut elements = 1u64;
    for (chunk, dim) in chunk.iter_mut().zip(shape).rev() {
        *chunk = (*dim).min((CHUNK / elements).max(1));
        elements = elements.saturating_mul(*chunk);
        if *chunk < *dim {
            break;
        }
    }
    chunk
}

/// The packed elements of a tensor.
#[derive(Debug)]
struct Packed {
    span: Span,
    per_byte: u64,
    shape: Vec<u64>,
    chunk: Vec<u64>,
}

impl Packed {
    /// Returns the first element of a chunk in C order, and how many elements of the tensor it has.
    fn run(&self, at: &[u64]) -> (u64, u64) {
        let (mut first, mut count) = (0u64, 1u64);
        for ((at, dim), chunk) in at.iter().zip(&self.shape).zip(&self.chunk) {
            first = first.saturating_mul(*dim).saturating_add(*at);
            count = count.saturating_mul((*chunk).min(dim.saturating_sub(*at)));
        }
        (first, count)
    }
}

impl Chunks for Packed {
    fn table(&self, _files: &FileSet) -> Result<Vec<Chunk>> {
        let mut table = Vec::new();
        let mut at = vec![0u64; self.shape.len()];
        loop {
            let (first, count) = self.run(&at);
            let start = first / self.per_byte;
            let end = first.saturating_add(count).div_ceil(self.per_byte);
            let offset = self.span.offset.saturating_add(start);
            let span = Span { file: self.span.file, offset, len: end - start };
            try_alloc::push(&mut table, Chunk { at: at.clone(), span, mask: 0 })?;
            let steps = at.iter_mut().zip(&self.chunk).zip(&self.shape).rev();
            let mut left = steps.map(|((at, chunk), dim)| {
                *at = at.saturating_add(*chunk);
                let carries = *at >= *dim;
                if carries {
                    *at = 0;
                }
                carries
            });
            if left.all(|carries| carries) {
                return Ok(table);
            }
        }
    }

    fn decode(&self, chunk: &Chunk, stored: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let (first, count) = self.run(&chunk.at);
        let padded = numel(&self.chunk).unwrap_or(count);
        out.clear();
        try_alloc::make_room(out, padded)?;
        let bits = 8 / self.per_byte;
        let mask = (1u16 << bits) - 1;
        let elements = stored.iter().flat_map(|byte| {
            (0..self.per_byte).map(move |at| ((u16::from(*byte) >> (at * bits)) & mask) as u8)
        });
        let skip = (first % self.per_byte) as usize;
        out.extend(elements.skip(skip).take(usize::try_from(count).unwrap_or(usize::MAX)));
        if out.len() as u64 != count {
            return Err(Error::damaged("a chunk of packed elements is too short"));
        }
        out.resize(usize::try_from(padded).unwrap_or(out.len()), 0);
        Ok(())
    }

    fn fill(&self) -> &[u8] {
        &[]
    }

    fn describe(&self) -> String {
        format!("{} bits per element", 8 / self.per_byte)
    }
}

#[cfg(test)]
mod tests {
    use statelens_checkpoint::FileId;

    use super::*;

    fn on_disk(len: u64) -> Storage {
        let layout = Layout::Span(Span { file: FileId(0), offset: 10, len });
        Storage { number: 0, layout, len }
    }

    /// Returns the elements of a tensor with these stored bytes, by its chunks.
    fn elements(stored: &[u8], per_byte: u64, shape: &[u64]) -> Vec<u8> {
        let strides = contiguous_strides(shape).unwrap();
        let found = layout(&on_disk(stored.len() as u64), per_byte, 0, shape, &strides);
        let Ok(Some(Layout::Chunked(chunked))) = found else { panic!("{found:?}") };
        let mut all = Vec::new();
        for chunk in chunked.chunks.table(&FileSet::default()).unwrap() {
            let at = (chunk.span.offset - 10) as usize;
            let stored = &stored[at..at + chunk.span.len as usize];
            let mut out = Vec::new();
            chunked.chunks.decode(&chunk, stored, &mut out).unwrap();
            assert_eq!(out.len() as u64, numel(&chunked.shape).unwrap());
            let held: u64 = (chunk.at.iter().zip(shape).zip(&chunked.shape))
                .map(|((at, dim), chunk)| (dim - at).min(*chunk))
                .product();
            all.extend(&out[..held as usize]);
        }
        all
    }

    #[test]
    fn elements_are_packed_without_gaps_between_rows() {
        // torch 2.15: the storages of 0 to 14 of shape [3, 5], and of 0 to 3, then 3s; their last
        // bytes are not used.
        let four = elements(&[16, 50, 84, 118, 152, 186, 220, 14, 0], 2, &[3, 5]);
        assert_eq!(four, (0..15).collect::<Vec<u8>>());
        let two = elements(&[228, 255, 255, 63, 189, 127], 4, &[3, 5]);
        assert_eq!(two, (0..15).map(|at: u8| at.min(3)).collect::<Vec<u8>>());
        let storage = on_disk(9);
        assert_eq!(layout(&storage, 2, 0, &[3, 5], &[1, 3]), Ok(None));
        assert_eq!(layout(&storage, 2, 1, &[3, 5], &[5, 1]), Ok(None));
        assert!(layout(&storage, 2, 0, &[3, 7], &[7, 1]).is_err());
        assert!(layout(&storage, 2, 0, &[1 << 40, 1 << 40], &[1 << 40, 1]).is_err());
    }

    #[test]
    fn chunks_cover_every_element_once() {
        for (shape, per_byte) in [
            (vec![3, 5], 2),
            (vec![3, (1 << 20) + 3], 4),
            (vec![5, 700, 1001], 2),
            (vec![(3 << 20) + 1], 4),
            (vec![2, 3, (1 << 20) + 1], 2),
        ] {
            let count = numel(&shape).unwrap();
            let stored: Vec<u8> =
                (0..count.div_ceil(per_byte)).map(|at| (at % 251) as u8).collect();
            let bits = 8 / per_byte;
            let expected = (0..count).map(|at| {
                (stored[(at / per_byte) as usize] >> (at % per_byte * bits)) & ((1 << bits) - 1)
            });
            assert!(elements(&stored, per_byte, &shape).into_iter().eq(expected), "{shape:?}");
        }
    }
}
