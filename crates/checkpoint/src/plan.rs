//! The output of a writer: a layout of the file to be, not the file.
//!
//! A plan lists segments from the first byte to the last. Most are known when it is made; some
//! depend on what the data turned out to be (a checksum, where a compressed chunk came to lie)
//! and are made when the data before them has passed. Nothing here reads or writes.

use std::fmt;
use std::sync::Arc;

use crate::{Checkpoint, Result, TensorId};

/// A file to be written.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What it is made from; segments name its tensors.
    pub source: Arc<Checkpoint>,
    /// The parts of the file, first to last.
    pub segments: Vec<Segment>,
    /// The first segment is made after all others (a header that says where things came to
    /// lie): whoever writes must be able to go back to the start, or keep the rest.
    pub head_last: bool,
    /// What the target can't hold as it is.
    pub losses: Vec<Loss>,
}

/// A part of the file to be.
#[derive(Clone)]
pub enum Segment {
    /// Bytes that are known now.
    Bytes(Arc<[u8]>),
    /// That many zeros.
    Zeros(u64),
    /// The logical bytes of a tensor.
    Data(Data),
    /// Bytes that depend on what came before (or, for a head that is made last, on all).
    Late {
        /// How many there will be, if that is known. `make` must keep to it.
        len: Option<u64>,
        /// Makes them.
        make: Arc<Make>,
    },
}

/// Makes the bytes of a [`Segment::Late`] from what the segments before it turned out to be.
pub type Make = dyn Fn(&Outcomes) -> Result<Vec<u8>> + Send + Sync;

/// The logical bytes of a tensor, as they go into the file.
#[derive(Clone)]
pub struct Data {
    /// Which tensor of [`Plan::source`].
    pub tensor: TensorId,
    /// The checksum that a later segment will ask for.
    pub checksum: Checksum,
    /// Written in chunks, each encoded by itself; else as they are.
    pub encoding: Option<Encoding>,
}

/// Which checksum of the bytes as written is needed later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Checksum {
    /// None: the bytes need not be looked at.
    #[default]
    None,
    /// CRC-32 (IEEE), as zip has it.
    Crc32,
}

/// How a tensor is cut and encoded.
#[derive(Clone)]
pub struct Encoding {
    /// Shape of a chunk in elements. Chunks are runs of the C order: all dimensions after the
    /// first that is cut are whole, all before it are 1. Edge chunks are padded with zeros.
    pub chunk: Vec<u64>,
    /// What is done to each chunk.
    pub encoder: Arc<dyn Encode>,
}

/// Encodes one chunk.
pub trait Encode: Send + Sync {
    /// Appends the stored form of `plain` to `out`; returns the HDF5 filter mask (0: all
    /// filters were applied).
    fn encode(&self, plain: &[u8], out: &mut Vec<u8>) -> Result<u32>;

    /// The most bytes that a chunk of `plain` bytes can take.
    fn bound(&self, plain: u64) -> u64;
}

/// How large the file will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Exactly so many bytes.
    Exact(u64),
    /// Not more than that: it depends on how well chunks compress.
    AtMost(u64),
}

impl Size {
    /// The number of bytes, exact or at most.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Exact(bytes) | Self::AtMost(bytes) => bytes,
        }
    }
}

/// What a segment turned out to be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// First byte in the file.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// The checksum that was asked for.
    pub crc32: Option<u32>,
    /// The chunks of an encoded tensor, in C order of the chunk grid.
    pub chunks: Vec<StoredChunk>,
}

/// Where an encoded chunk came to lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredChunk {
    /// First byte in the file.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// Filters that were skipped.
    pub mask: u32,
}

/// The outcomes of the segments so far, by index in [`Plan::segments`].
pub type Outcomes = [Outcome];

/// Something that the target can't hold as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// The flat keys concerned, in order.
    pub keys: Vec<String>,
    /// What happens to them: a sentence without its full stop.
    pub what: String,
    /// Why; whole sentences.
    pub why: String,
    /// Nothing is lost but the form (a numpy scalar becomes a plain number): shown, not asked.
    pub harmless: bool,
}

impl Plan {
    /// How large the file will be; an error if that does not fit 64 bits.
    pub fn size(&self) -> Result<Size> {
        let mut total = 0u64;
        let mut exact = true;
        for segment in &self.segments {
            let (len, known) = segment.size(&self.source)?;
            total = total.checked_add(len).ok_or_else(too_large)?;
            exact &= known;
        }
        Ok(if exact { Size::Exact(total) } else { Size::AtMost(total) })
    }

    /// Whether something would be lost that the user must agree to.
    pub fn loses(&self) -> bool {
        self.losses.iter().any(|loss| !loss.harmless)
    }
}

/// A `Late` segment of unknown length is an index of what was written; the plan's bound counts
/// it as this much, and the data it indexes is bounded exactly.
const INDEX_BOUND: u64 = 1 << 20;

impl Segment {
    /// Bytes, and whether that is exact.
    fn size(&self, source: &Checkpoint) -> Result<(u64, bool)> {
        Ok(match self {
            Self::Bytes(bytes) => (bytes.len() as u64, true),
            Self::Zeros(len) => (*len, true),
            Self::Late { len: Some(len), .. } => (*len, true),
            Self::Late { len: None, .. } => (INDEX_BOUND, false),
            Self::Data(Data { tensor, encoding, .. }) => {
                let tensor = source.tensor(*tensor)?;
                let bytes = tensor.nbytes().ok_or_else(too_large)?;
                match encoding {
                    None => (bytes, true),
                    Some(encoding) => {
                        (encoding.bound(&tensor.shape, tensor.dtype.itemsize())?, false)
                    }
                }
            }
        })
    }
}

impl Encoding {
    /// Number of chunks along each dimension of a tensor of `shape`.
    pub fn grid(&self, shape: &[u64]) -> Vec<u64> {
        shape.iter().zip(&self.chunk).map(|(dim, chunk)| dim.div_ceil((*chunk).max(1))).collect()
    }

    fn bound(&self, shape: &[u64], itemsize: u64) -> Result<u64> {
        let count = crate::tensor::numel(&self.grid(shape));
        let chunk = crate::tensor::numel(&self.chunk).and_then(|n| n.checked_mul(itemsize));
        let total = count.zip(chunk).and_then(|(n, len)| n.checked_mul(self.encoder.bound(len)));
        total.ok_or_else(too_large)
    }
}

fn too_large() -> crate::Error {
    crate::Error::unsupported("the file to be written would be larger than 64 bits can count")
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "Bytes({})", bytes.len()),
            Self::Zeros(len) => write!(f, "Zeros({len})"),
            Self::Data(data) => write!(f, "Data({:?}, {:?})", data.tensor, data.checksum),
            Self::Late { len, .. } => write!(f, "Late({len:?})"),
        }
    }
}
