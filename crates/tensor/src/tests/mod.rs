//! Compares every layout with a naive reference, fed in every way.

mod chunks;
mod feeding;
mod hostile;
mod ordered;
mod views;

use std::ops::Range;
use std::sync::Arc;

use statelens_checkpoint::{
    self as checkpoint, ByteOrder, Chunk, Chunked, Chunks, Concat, DType, Error, ErrorKind,
    FileSet, Layout, Memory, NumpyType, Packed, Packing, Part, Result, Span, Strided, Tensor,
    Unwatched,
};

use crate::{BUDGET, Gather, Need, drain, elements, verbatim_span, verbatim_spans};

/// A pseudo-random number generator: seeded xorshift.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below.max(1)
    }

    fn range(&mut self, len: u64) -> Range<u64> {
        let (a, b) = (self.next(len + 1), self.next(len + 1));
        a.min(b)..a.max(b)
    }

    fn shape(&mut self, rank: u64, most: u64) -> Vec<u64> {
        (0..rank).map(|_| 1 + self.next(most)).collect()
    }
}

/// Runs a gather, feeding pieces of the sizes that `piece` returns.
fn run(
    files: &FileSet,
    tensor: &Tensor,
    range: Range<u64>,
    budget: usize,
    mut piece: impl FnMut(u64) -> u64,
) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut out = |piece: &[u8]| {
        bytes.extend_from_slice(piece);
        Ok(())
    };
    let mut gather = Gather::new(files, tensor, range, budget)?;
    loop {
        match gather.need() {
            Need::Feed(span) => {
                let len = piece(span.len).min(span.len);
                let fed = files.read_vec(span.file, span.offset, len)?;
                gather.feed(&fed, &mut out)?;
            }
            Need::Step => gather.step(files, &mut out)?,
            Need::Done => return Ok(bytes),
        }
    }
}

fn whole(files: &FileSet, tensor: &Tensor) -> Result<Vec<u8>> {
    run(files, tensor, 0..tensor.numel().unwrap_or(0), BUDGET, |len| len)
}

fn bytes(len: usize) -> Vec<u8> {
    let mut random = Random(len as u64 + 1);
    (0..len).map(|_| random.next(256) as u8).collect()
}

fn file(bytes: Vec<u8>) -> FileSet {
    FileSet::single("test.bin", Memory::from(bytes))
}

fn span(files: &FileSet, offset: u64, len: u64) -> Layout {
    Layout::Span(Span { file: files.main().unwrap(), offset, len })
}

/// Returns a dtype of `size` opaque bytes.
fn opaque(size: u64) -> DType {
    DType::Numpy(Arc::new(NumpyType {
        name: "void".into(),
        code: "V".into(),
        itemsize: size,
        words: Vec::new(),
        fields: Vec::new(),
    }))
}

/// Returns all indices of a shape in C order.
fn indices(shape: &[u64]) -> Vec<Vec<u64>> {
    let total: u64 = shape.iter().product();
    (0..total)
        .map(|mut at| {
            let mut index = vec![0; shape.len()];
            for dim in (0..shape.len()).rev() {
                index[dim] = at % shape[dim];
                at /= shape[dim];
            }
            index
        })
        .collect()
}

fn deflate(plain: &[u8]) -> Vec<u8> {
    let mut machine = flate2::Compress::new(flate2::Compression::new(6), false);
    let mut packed = Vec::with_capacity(plain.len() + plain.len() / 100 + 100);
    machine.compress_vec(plain, &mut packed, flate2::FlushCompress::Finish).unwrap();
    packed
}
