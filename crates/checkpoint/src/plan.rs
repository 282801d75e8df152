//! The output of a writer: a layout of the files to be, not the files.
//!
//! A plan lists the segments of each file from the first byte to the last. Most are known when it
//! is made; some depend on what the data turned out to be (a checksum, where a compressed chunk
//! came to lie) and are made when the data before them has passed. Nothing here reads or writes.

use std::fmt;
use std::sync::Arc;

use crate::{Checkpoint, Limits, Result, TensorId};

/// Files to be written: one, or several that are a checkpoint together.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What they are made from; segments name its tensors.
    pub source: Arc<Checkpoint>,
    /// The files, in the order in which they are written.
    pub files: Vec<PlannedFile>,
    /// What the target can't hold as it is.
    pub losses: Vec<Loss>,
}

/// One file of a plan.
#[derive(Debug, Clone)]
pub struct PlannedFile {
    /// Its name, without a folder.
    pub name: String,
    /// Its parts, first to last.
    pub segments: Vec<Segment>,
    /// The first segment is made after all others of the file (a header that says where things
    /// came to lie): whoever writes must be able to go back to the start, or keep the rest.
    pub head_last: bool,
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
pub type Make = dyn Fn(&Outcomes<'_>) -> Result<Vec<u8>> + Send + Sync;

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
    /// CRC-32C (Castagnoli), not masked.
    Crc32c,
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
pub struct WrittenSegment {
    /// First byte in the file.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// The checksum that was asked for.
    pub checksum: Option<u32>,
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

/// The outcomes of the segments so far.
#[derive(Debug, Clone, Copy)]
pub struct Outcomes<'a>(&'a [Vec<WrittenSegment>]);

impl<'a> Outcomes<'a> {
    /// Those of each file so far, by index in [`Plan::files`]; the last one is being written.
    pub fn new(files: &'a [Vec<WrittenSegment>]) -> Self {
        Self(files)
    }

    /// Those of the file that is being written, by index in [`PlannedFile::segments`].
    pub fn here(&self) -> &'a [WrittenSegment] {
        self.0.last().map_or(&[], Vec::as_slice)
    }

    /// Those of a file by its index in [`Plan::files`]; empty for one that is yet to come.
    pub fn file(&self, index: usize) -> &'a [WrittenSegment] {
        self.0.get(index).map_or(&[], Vec::as_slice)
    }
}

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
    /// How large the files will be together; an error if that does not fit 64 bits.
    pub fn size(&self) -> Result<Size> {
        size_of(self.segments(), &self.source)
    }

    /// Bytes of the files together, at most. Fails where that is far more than the source holds: whoever
    /// writes them asks first.
    pub fn bounded(&self, limits: &Limits) -> Result<u64> {
        let size = self.size()?.bytes();
        self.source.unfolded().writing(size).check("writing the file", limits)?;
        Ok(size)
    }

    /// The segments of all files, first to last.
    pub fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.files.iter().flat_map(|file| &file.segments)
    }

    /// Whether something would be lost that the user must agree to.
    pub fn loses(&self) -> bool {
        self.losses.iter().any(|loss| !loss.harmless)
    }
}

impl PlannedFile {
    /// How large the file will be; an error if that does not fit 64 bits.
    pub fn size(&self, source: &Checkpoint) -> Result<Size> {
        size_of(self.segments.iter(), source)
    }
}

fn size_of<'a>(segments: impl Iterator<Item = &'a Segment>, source: &Checkpoint) -> Result<Size> {
    let mut total = 0u64;
    let mut exact = true;
    for segment in segments {
        let (len, known) = segment.size(source)?;
        total = total.checked_add(len).ok_or_else(too_large)?;
        exact &= known;
    }
    Ok(if exact { Size::Exact(total) } else { Size::AtMost(total) })
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
    crate::Error::unsupported("the files to be written would be larger than 64 bits can count")
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
