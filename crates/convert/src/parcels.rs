//! A large tensor in parcels, each made ready for the new file by itself: where something has to
//! be done to every byte, several processors do it at once.
//!
//! What comes of it is the same to the byte as what a [`Run`](crate::Run) makes alone, which takes the parcels in
//! their order.

use std::ops::Range;
use std::sync::Arc;

use statelens_checkpoint::{Checkpoint, Encoding, Layout, Result, StoredChunk, Tensor, TensorId};
use statelens_tensor::{BUDGET, Pour, Receive, grain};

use crate::cutter::Cutter;

/// Logical bytes of a parcel, about: a parcel for each processor and some that wait for their turn
/// are in memory.
const PARCEL: u64 = 512 << 10;
/// The largest one, where it can't be cut.
const LARGEST: u64 = 16 << 20;
/// Tensors of fewer bytes are not worth it.
const WORTH: u64 = 1 << 20;

/// How a tensor falls into parcels.
#[derive(Clone)]
pub struct Parcels {
    source: Arc<Checkpoint>,
    tensor: TensorId,
    encoding: Option<Encoding>,
    numel: u64,
    /// Elements of each but the last.
    size: u64,
}

/// What was made of one.
pub struct Parcel {
    /// Logical bytes, or chunks one after the other.
    pub(crate) bytes: Vec<u8>,
    /// The chunks, if it is encoded; their offsets are not known yet.
    pub(crate) chunks: Vec<StoredChunk>,
    /// Logical bytes that came.
    pub(crate) logical: u64,
    cutter: Option<Cutter>,
}

impl Parcels {
    /// Of a tensor as a plan writes it; `None` if that falls into none, or is not worth it.
    pub(crate) fn of(
        source: &Arc<Checkpoint>,
        id: TensorId,
        encoding: Option<&Encoding>,
    ) -> Result<Option<Self>> {
        let tensor = source.tensor(id)?;
        let (Some(numel), Some(bytes)) = (tensor.numel(), tensor.nbytes()) else { return Ok(None) };
        // Bytes that are only copied are not worth handing over.
        let is_cast = tensor.stored != tensor.dtype;
        let packed = encoding.is_some() || matches!(tensor.layout, Layout::Chunked(_));
        if bytes < WORTH || !(packed || is_cast) {
            return Ok(None);
        }
        let size = grain(tensor).and_then(|read| {
            let written = encoding.map_or(Some(1), |encoding| written(tensor, encoding))?;
            let both = read.checked_mul(written / common(read, written))?;
            // Bytes are at least as many as elements, but for dtypes of less than a byte.
            let parcel = (numel / bytes.div_ceil(PARCEL).max(1)).max(1);
            let size = both.checked_mul(parcel.div_ceil(both).max(1))?;
            let largest = u128::from(size) * u128::from(bytes) / u128::from(numel.max(1));
            (size < numel && largest <= u128::from(LARGEST)).then_some(size)
        });
        let parcels = |size| Self {
            source: source.clone(),
            tensor: id,
            encoding: encoding.cloned(),
            numel,
            size,
        };
        Ok(size.map(parcels))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        usize::try_from(self.numel.div_ceil(self.size)).unwrap_or(usize::MAX)
    }

    /// Logical bytes of one.
    pub fn bytes(&self, parcel: usize) -> u64 {
        let Range { start, end } = self.range(parcel);
        let tensor = self.source.tensor(self.tensor);
        tensor.ok().and_then(|tensor| tensor.dtype.bytes_of(end - start)).unwrap_or(0)
    }

    /// The machine that makes one ready.
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
        let start = |parcel: u64| parcel.saturating_mul(self.size).min(self.numel);
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

/// Elements at multiples of which chunks begin that are padded at no other place than the end.
fn written(tensor: &Tensor, encoding: &Encoding) -> Option<u64> {
    let (shape, chunk) = (&tensor.shape, &encoding.chunk);
    let cut = shape.iter().zip(chunk).rposition(|(dim, chunk)| dim != chunk).unwrap_or(0);
    let elements =
        |lengths: &[u64]| lengths.iter().try_fold(1u64, |all, len| all.checked_mul(*len));
    let begins = if cut == 0 { elements(chunk)? } else { elements(shape.get(cut..)?)? };
    (begins > 0).then_some(begins)
}

/// The greatest common divisor of numbers above 0.
fn common(mut one: u64, mut other: u64) -> u64 {
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one.max(1)
}
