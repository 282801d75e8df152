//! The output of a writer: a layout of the files to write, not the files.
//!
//! A plan lists the segments of each file from the first byte to the last. Most are known when the
//! plan is made; some depend on the data (a checksum, the offset of a compressed chunk) and are
//! made after the data before them has been written. Nothing here reads or writes.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::{Checkpoint, Limits, Loss, Result, Tensor, TensorId};

/// Files to write: one, or several that together are a checkpoint.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The source of the data; segments refer to its tensors.
    pub source: Arc<Checkpoint>,
    /// The files, in the order in which they are written.
    pub files: Vec<PlannedFile>,
    /// What the target can't represent unchanged.
    pub losses: Vec<Loss>,
}

/// One file of a plan.
#[derive(Debug, Clone)]
pub struct PlannedFile {
    /// Name without a folder.
    pub name: String,
    /// Parts of the file, first to last.
    pub segments: Vec<Segment>,
    /// The first segment is made after all others of the file (a header with offsets). The sink
    /// must be able to seek back to the start, or buffer the rest.
    pub head_last: bool,
}

/// A part of a planned file.
#[derive(Clone)]
pub enum Segment {
    /// Bytes that are known now.
    Bytes(Arc<[u8]>),
    /// That many zeros.
    Zeros(u64),
    /// The logical bytes of a tensor.
    Data(Data),
    /// Bytes that depend on the segments before them (or, with `head_last`, on all others).
    Late {
        /// Length, if known. `make` must keep to it.
        len: Option<u64>,
        /// Returns the bytes.
        make: Arc<Make>,
    },
}

/// Makes the bytes of a [`Segment::Late`] from the outcomes of the other segments.
pub type Make = dyn Fn(&Outcomes<'_>) -> Result<Vec<u8>> + Send + Sync;

/// The logical bytes of a tensor as they are written to the file.
#[derive(Clone)]
pub struct Data {
    /// A tensor of [`Plan::source`].
    pub tensor: TensorId,
    /// The checksum that a later segment needs.
    pub checksum: Checksum,
    /// The encoding, if the tensor is written in chunks; otherwise its bytes are copied unchanged.
    pub encoding: Option<Encoding>,
    /// The elements to write, counted in C order; `None` for all. A part is never encoded, and it
    /// begins and ends at whole bytes.
    pub part: Option<Range<u64>>,
}

impl Data {
    /// Returns all bytes of a tensor, without an encoding.
    pub fn plain(tensor: TensorId, checksum: Checksum) -> Self {
        Self { tensor, checksum, encoding: None, part: None }
    }

    /// Returns the elements to write. `tensor` is that of the plan.
    pub fn elements(&self, tensor: &Tensor) -> Range<u64> {
        self.part.clone().unwrap_or(0..tensor.numel().unwrap_or(0))
    }

    /// Returns the number of logical bytes; `None` if it does not fit in 64 bits.
    pub fn nbytes(&self, tensor: &Tensor) -> Option<u64> {
        match &self.part {
            None => tensor.nbytes(),
            Some(part) => tensor.dtype.bytes_of(part.end.checked_sub(part.start)?),
        }
    }
}

/// A checksum of the written bytes that is needed later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Checksum {
    /// No checksum: the bytes need not be read for one.
    #[default]
    None,
    /// CRC-32 (IEEE), as in zip.
    Crc32,
    /// CRC-32C (Castagnoli), not masked.
    Crc32c,
}

/// How a tensor is split into chunks and encoded.
#[derive(Clone)]
pub struct Encoding {
    /// Shape of a chunk in elements. Chunks are runs of the C order: all dimensions after the
    /// first that is cut are whole, all before it are 1. Edge chunks are padded with zeros.
    pub chunk: Vec<u64>,
    /// The encoder of each chunk.
    pub encoder: Arc<dyn Encode>,
}

/// An encoder of single chunks.
pub trait Encode: Send + Sync {
    /// Appends the encoded form of `plain` to `out`. Returns the HDF5 filter mask (0: all filters
    /// were applied).
    fn encode(&self, plain: &[u8], out: &mut Vec<u8>) -> Result<u32>;

    /// Returns the most bytes that an encoded chunk of `plain` bytes can take.
    fn bound(&self, plain: u64) -> u64;
}

/// Size of a planned file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Exactly this many bytes.
    Exact(u64),
    /// At most this many bytes: the size depends on how well chunks compress.
    AtMost(u64),
}

impl Size {
    /// Returns the exact or largest number of bytes.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Exact(bytes) | Self::AtMost(bytes) => bytes,
        }
    }
}

/// The outcome of writing a segment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WrittenSegment {
    /// First byte in the file.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// The checksum, if the segment asks for one.
    pub checksum: Option<u32>,
    /// The chunks of an encoded tensor, in C order of the chunk grid.
    pub chunks: Vec<StoredChunk>,
}

/// Location of an encoded chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredChunk {
    /// First byte in the file.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// Filters that were skipped.
    pub mask: u32,
}

/// The outcomes of the segments written so far.
#[derive(Debug, Clone, Copy)]
pub struct Outcomes<'a>(&'a [Vec<WrittenSegment>]);

impl<'a> Outcomes<'a> {
    /// Wraps the outcomes of each file so far, by index in [`Plan::files`]; the last one is being
    /// written.
    pub fn new(files: &'a [Vec<WrittenSegment>]) -> Self {
        Self(files)
    }

    /// Returns the outcomes of the file that is being written, by index in
    /// [`PlannedFile::segments`].
    pub fn here(&self) -> &'a [WrittenSegment] {
        self.0.last().map_or(&[], Vec::as_slice)
    }

    /// Returns the outcomes of a file by its index in [`Plan::files`]; empty if it has not been
    /// started.
    pub fn file(&self, index: usize) -> &'a [WrittenSegment] {
        self.0.get(index).map_or(&[], Vec::as_slice)
    }
}

impl Plan {
    /// Returns the size of all files together; an error if that does not fit in 64 bits.
    pub fn size(&self) -> Result<Size> {
        size_of(self.segments(), &self.source)
    }

    /// Returns the most bytes that the files take together. Fails if that is far more than the
    /// source holds, in which case the user must agree first.
    pub fn bounded(&self, limits: &Limits) -> Result<u64> {
        let size = self.size()?.bytes();
        self.source.unfolded().writing(size).check("writing the file", limits)?;
        Ok(size)
    }

    /// Iterates over the segments of all files, first to last.
    pub fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.files.iter().flat_map(|file| &file.segments)
    }

    /// Returns whether something would be lost that the user must agree to.
    pub fn loses(&self) -> bool {
        self.losses.iter().any(|loss| !loss.harmless)
    }
}

impl PlannedFile {
    /// Returns the size of the file; an error if that does not fit in 64 bits.
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

/// The size assumed for a `Late` segment of unknown length, which is an index of the written data.
/// The data that it indexes has a proper bound.
const INDEX_BOUND: u64 = 1 << 20;

impl Segment {
    /// Returns the number of bytes, and whether it is exact; an error if it does not fit in 64 bits.
    pub fn size(&self, source: &Checkpoint) -> Result<(u64, bool)> {
        Ok(match self {
            Self::Bytes(bytes) => (bytes.len() as u64, true),
            Self::Zeros(len) => (*len, true),
            Self::Late { len: Some(len), .. } => (*len, true),
            Self::Late { len: None, .. } => (INDEX_BOUND, false),
            Self::Data(data) => {
                let tensor = source.tensor(data.tensor)?;
                let bytes = data.nbytes(tensor).ok_or_else(too_large)?;
                match &data.encoding {
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
    /// Returns the number of chunks along each dimension of a tensor of `shape`.
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
