//! Splits a large tensor into parcels that can be prepared for the new file in parallel, where
//! every byte needs processing.
//!
//! The result equals that of a [`Run`](crate::Run) without parcels byte for byte; the run takes the
//! parcels in order.

use std::ops::Range;
use std::sync::Arc;

use statelens_checkpoint::{
    Checkpoint, Data, Encoding, Layout, Result, StoredChunk, Tensor, TensorId,
};
use statelens_tensor::{BUDGET, Pour, Receive, grain};

use crate::cutter::Cutter;

/// Approximate logical bytes of a parcel. One parcel per processor is in memory, plus some that
/// wait for their turn.
const PARCEL: u64 = 512 << 10;
/// The largest parcel, in bytes, for tensors that can't be split further.
const MAX_PARCEL: u64 = 16 << 20;
/// Smaller tensors are not worth splitting.
const WORTH: u64 = 1 << 20;

/// The division of a tensor into parcels.
#[derive(Clone)]
pub struct Parcels {
    source: Arc<Checkpoint>,
    tensor: TensorId,
    encoding: Option<Encoding>,
    elements: Range<u64>,
    /// Elements of each parcel but the last.
    size: u64,
}

/// The result of processing one parcel.
pub struct Parcel {
    /// Logical bytes, or the concatenated chunks.
    pub(crate) bytes: Vec<u8>,
    /// The chunks, if the tensor is encoded; their offsets are not known yet.
    pub(crate) chunks: Vec<StoredChunk>,
    /// Logical bytes received.
    pub(crate) logical: u64,
    cutter: Option<Cutter>,
}

impl Parcels {
    /// Splits a tensor as a plan writes it; `None` if it can't be split, or is not worth it.
    pub(crate) fn of(source: &Arc<Checkpoint>, data: &Data) -> Result<Option<Self>> {
        let tensor = source.tensor(data.tensor)?;
        let encoding = data.encoding.as_ref();
        let elements = data.elements(tensor);
        let numel = elements.end.saturating_sub(elements.start);
        let Some(bytes) = data.nbytes(tensor) else { return Ok(None) };
        // Bytes that are only copied are not worth handing to another thread.
        let is_cast = tensor.stored != tensor.dtype;
        let packed = encoding.is_some() || matches!(tensor.layout, Layout::Chunked(_));
        if bytes < WORTH || !(packed || is_cast) {
            return Ok(None);
        }
        let size = grain(tensor).and_then(|read| {
            let written = encoding.map_or(Some(1), |encoding| written(tensor, encoding))?;
            let both = read.checked_mul(written / common(read, written))?;
            // There are at least as many bytes as elements, except for dtypes of less than a byte.
            let parcel = (numel / bytes.div_ceil(PARCEL).max(1)).max(1);
            let size = both.checked_mul(parcel.div_ceil(both).max(1))?;
            let largest = u128::from(size) * u128::from(bytes) / u128::from(numel.max(1));
            (size < numel && largest <= u128::from(MAX_PARCEL)).then_some(size)
        });
        let parcels = |size| Self {
            source: source.clone(),
            tensor: data.tensor,
            encoding: encoding.cloned(),
            elements,
            size,
        };
        Ok(size.map(parcels))
    }

    /// Returns the number of parcels.
    pub fn count(&self) -> usize {
        let numel = self.elements.end - self.elements.start;
        usize::try_from(numel.div_ceil(self.size)).unwrap_or(usize::MAX)
    }

    /// Returns the logical bytes of a parcel.
    pub fn bytes(&self, parcel: usize) -> u64 {
        let Range { start, end } = self.range(parcel);
        let tensor = self.source.tensor(self.tensor);
        tensor.ok().and_then(|tensor| tensor.dtype.bytes_of(end - start)).unwrap_or(0)
    }

    /// Returns the machine that processes a parcel.
    pub fn begin(&self, parcel: usize) -> Result<Pour<Parcel>> {
        let tensor = self.source.tensor(self.tensor)?;
        let range = self.range(parcel);
        let cutter = match &self.encoding {
            Some(encoding) => {
                let before = tensor.dtype.bytes_of(range.start).unwrap_or(0);
                let limits = self.source.files.limits();
                Some(Cutter::new(encoding, tensor, limits)?.starting_at(before))
            }
            None => None,
        };
        let made = Parcel { bytes: Vec::new(), chunks: Vec::new(), logical: 0, cutter };
        Pour::new(&self.source.files, tensor, range, BUDGET, made)
    }

    fn range(&self, parcel: usize) -> Range<u64> {
        let Range { start: first, end } = self.elements;
        let start = |parcel: u64| first.saturating_add(parcel.saturating_mul(self.size)).min(end);
        start(parcel as u64)..start((parcel as u64).saturating_add(1))
    }
}

impl Receive for Parcel {
    fn receive(&mut self, bytes: &[u8]) -> Result<()> {
        let Self { bytes: made, chunks, logical, cutter } = self;
        *logical += bytes.len() as u64;
        match cutter {
            None => made.extend_from_slice(bytes),
            Some(cutter) => cutter.feed(bytes, &mut |encoded, chunk| {
                made.extend_from_slice(encoded);
                chunks.push(chunk);
                Ok(())
            })?,
        }
        Ok(())
    }
}

/// Returns a number of elements: at its multiples chunks begin, and only chunks at the end of the
/// tensor are padded.
fn written(tensor: &Tensor, encoding: &Encoding) -> Option<u64> {
    let (shape, chunk) = (&tensor.shape, &encoding.chunk);
    let cut = shape.iter().zip(chunk).rposition(|(dim, chunk)| dim != chunk).unwrap_or(0);
    let elements =
        |lengths: &[u64]| lengths.iter().try_fold(1u64, |all, len| all.checked_mul(*len));
    let begins = if cut == 0 { elements(chunk)? } else { elements(shape.get(cut..)?)? };
    (begins > 0).then_some(begins)
}

/// Returns the greatest common divisor of numbers above 0.
fn common(mut one: u64, mut other: u64) -> u64 {
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one.max(1)
}
