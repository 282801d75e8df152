//! Location of the bytes of a tensor.

mod dequantised;

use std::fmt;
use std::sync::{Arc, OnceLock};

pub use dequantised::{
    CodePacking, CodeValues, Codes, Dequantised, Groups, MAX_FIELDS, Offset, Scales,
};

use crate::{FileSet, Result, Span, Tensor, Text};

/// The location of the bytes of a tensor. Their meaning is in the tensor's dtype, shape and byte
/// order.
#[derive(Debug, Clone, PartialEq)]
pub enum Layout {
    /// Dense C order in one range of a file.
    Span(Span),
    /// A view of a storage.
    Strided(Strided),
    /// Chunks that may be filtered (compressed, shuffled), each decoded as a whole.
    Chunked(Chunked),
    /// One compressed stream that holds the dense bytes: a deflated member of a zip file.
    Packed(Packed),
    /// Parts that are concatenated along an axis.
    Concat(Concat),
    /// A place within a range of a file, which the range itself describes: looked up when the bytes
    /// are needed.
    Deferred(Deferred),
    /// Computed element by element from another tensor.
    Computed(Arc<Computed>),
    /// Computed from small codes and their scales.
    Dequantised(Arc<Dequantised>),
    /// Every element equals this one; its length is the stored dtype's itemsize.
    Fill(Arc<[u8]>),
    /// The dense bytes themselves, if the file has them in its structure.
    Inline(Arc<[u8]>),
    /// No bytes: a meta tensor, or a missing file. The text gives the reason.
    Missing(Text),
}

/// A view of a storage, as in torch. Readers check that every element is inside it.
#[derive(Debug, Clone, PartialEq)]
pub struct Strided {
    /// The storage: a `Span`, `Packed`, `Inline` or `Fill`; or a `Concat` of parts, for a chunked
    /// storage with a shape of its own. Its elements count in C order.
    pub storage: Arc<Layout>,
    /// Length of the storage in bytes.
    pub storage_len: u64,
    /// First element, counted from the start of the storage.
    pub offset: u64,
    /// Elements between neighbours, per dimension; may be 0 or negative.
    pub strides: Vec<i64>,
}

/// An array in chunks of one shape; chunks at the far edges are padded to full size.
#[derive(Clone)]
pub struct Chunked {
    /// Shape of a chunk, in elements, as many dimensions as the tensor.
    pub shape: Vec<u64>,
    /// The chunks and their filters.
    pub chunks: Arc<dyn Chunks>,
}

/// The chunks of an array: looked up when they are needed, not when the file is opened.
pub trait Chunks: fmt::Debug + Send + Sync {
    /// Returns all stored chunks, in any order. Chunks that are not stored are filled with
    /// [`Chunks::fill`].
    fn table(&self, files: &FileSet) -> Result<Vec<Chunk>>;

    /// Undoes the filters. `stored` are the bytes of the chunk in the file; `out` is cleared and
    /// receives exactly the chunk's elements in C order, in the file's byte order.
    fn decode(&self, chunk: &Chunk, stored: &[u8], out: &mut Vec<u8>) -> Result<()>;

    /// Returns the element that fills chunks that are not stored; empty means zeros.
    fn fill(&self) -> &[u8];

    /// Returns the filters in the order they were applied, for display: `lz4`, `shuffle, gzip 4`,
    /// or empty.
    fn describe(&self) -> String;
}

/// One stored chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Its first element in the array, one index per dimension.
    pub at: Vec<u64>,
    /// Location of its bytes.
    pub span: Span,
    /// Filters that were skipped for this chunk, as in HDF5: bit n for the n-th filter.
    pub mask: u32,
}

/// A compressed stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packed {
    /// Location of the compressed bytes.
    pub span: Span,
    /// Compression method.
    pub packing: Packing,
    /// Bytes to skip at the start of the decompressed stream: a header.
    pub skip: u64,
    /// Decompressed length, without the skipped bytes.
    pub len: u64,
}

/// Compression methods: those of zip members that Python's `zipfile` reads, and Zstandard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Packing {
    /// Raw deflate (RFC 1951), method 8.
    Deflate,
    /// bzip2, method 12.
    Bzip2,
    /// LZMA after its properties, method 14.
    Lzma,
    /// A frame of Zstandard (RFC 8878), which may hold further bytes after those of the tensor.
    Zstd,
}

impl Packing {
    /// Returns the name to display.
    pub fn name(self) -> &'static str {
        match self {
            Self::Deflate => "deflate",
            Self::Bzip2 => "bzip2",
            Self::Lzma => "LZMA",
            Self::Zstd => "Zstandard",
        }
    }

    /// Returns the past participle of the compression for messages, for example `deflated`.
    pub fn past(self) -> &'static str {
        match self {
            Self::Deflate => "deflated",
            Self::Bzip2 => "compressed with bzip2",
            Self::Lzma => "compressed with LZMA",
            Self::Zstd => "compressed with Zstandard",
        }
    }
}

/// Parts that are concatenated along an axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Concat {
    /// The axis.
    pub axis: usize,
    /// The parts; their shapes are equal except along the axis, where they add up to the whole.
    pub parts: Vec<Part>,
}

/// A part of a [`Concat`].
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// Shape of the part.
    pub shape: Vec<u64>,
    /// Location of the part.
    pub layout: Layout,
}

/// Elements that are computed from those of another tensor as they are read. The tensor with this
/// layout is little-endian, has the same shape, and is stored as the dtype of [`Computed::of`].
#[derive(Debug, Clone, PartialEq)]
pub struct Computed {
    /// The input tensor.
    pub of: Tensor,
    /// Operations on each element, in order; the result of each is rounded to the dtype, as in
    /// torch.
    pub steps: Vec<Arithmetic>,
    /// The product that is added afterwards.
    pub product: Option<Product>,
}

/// The product of two thin matrices, which are held in memory meanwhile.
#[derive(Debug, Clone, PartialEq)]
pub struct Product {
    /// The left matrix, `[rows, rank]`.
    pub left: Tensor,
    /// The right matrix, `[rank, columns]`.
    pub right: Tensor,
    /// Factor of each element of the product.
    pub scale: f64,
    /// Which intermediate results are rounded to a 16-bit dtype.
    pub rounding: Rounding,
}

/// Which results of adding a [`Product`] are rounded to a 16-bit dtype.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounding {
    /// The product, the product times the scale, and the sum.
    Each,
    /// The product times the scale, and the sum.
    Scaled,
    /// The sum.
    Sum,
}

/// One operation of a [`Computed`] tensor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arithmetic {
    /// Adds a number.
    Add(f64),
    /// Multiplies by a number.
    Multiply(f64),
    /// Divides by a number.
    Divide(f64),
    /// Replaces NaN with zero.
    NanToZero,
    /// Replaces the element with a random number of mean 0 and this standard deviation. It depends
    /// only on seed and position, so that repeated reads agree.
    Normal {
        /// The standard deviation.
        deviation: f64,
        /// Seed of the random numbers.
        seed: u64,
    },
    /// Replaces the element with a random number between `-bound` and `bound`.
    Uniform {
        /// The bound.
        bound: f64,
        /// Seed of the random numbers.
        seed: u64,
    },
}

/// A range of a file that holds dense elements together with their location: one of the many small
/// archives in a distributed checkpoint. Parsing each of them when the file is opened would cost
/// one read each.
#[derive(Clone)]
pub struct Deferred {
    span: Span,
    locate: Arc<dyn Locate>,
    found: Arc<OnceLock<Layout>>,
}

/// Finds the elements in a [`Deferred`] range.
pub trait Locate: fmt::Debug + Send + Sync {
    /// Returns the location of the elements of an array of `shape`; never a [`Layout::Deferred`].
    /// Fails if the stored shape, dtype or byte order differs from the tensor's.
    fn locate(&self, files: &FileSet, span: Span, shape: &[u64]) -> Result<Layout>;
}

impl Computed {
    /// Iterates over the layouts of all inputs.
    pub fn layouts(&self) -> impl Iterator<Item = &Layout> {
        let factors = self.product.iter().flat_map(|product| [&product.left, &product.right]);
        std::iter::once(&self.of).chain(factors).map(|tensor| &tensor.layout)
    }
}

impl Deferred {
    /// Creates a layout that `locate` will look up in `span`.
    pub fn new(span: Span, locate: Arc<dyn Locate>) -> Self {
        Self { span, locate, found: Arc::new(OnceLock::new()) }
    }

    /// Returns the range of the file, which is larger than the elements.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Returns the location of the elements, looked up at most once. See [`Locate::locate`].
    pub fn layout(&self, files: &FileSet, shape: &[u64]) -> Result<&Layout> {
        if let Some(found) = self.found.get() {
            return Ok(found);
        }
        let found = self.locate.locate(files, self.span, shape)?;
        Ok(self.found.get_or_init(|| found))
    }
}

impl fmt::Debug for Deferred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Deferred({:?}, {:?})", self.span, self.locate)
    }
}

impl PartialEq for Deferred {
    /// Compares range and lookup function, not the location found.
    fn eq(&self, other: &Self) -> bool {
        self.span == other.span && Arc::ptr_eq(&self.locate, &other.locate)
    }
}

impl fmt::Debug for Chunked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chunked({:?}, {:?})", self.shape, self.chunks)
    }
}

impl PartialEq for Chunked {
    /// Compares shape and identity; reading the tables to compare them would be too costly.
    fn eq(&self, other: &Self) -> bool {
        self.shape == other.shape && Arc::ptr_eq(&self.chunks, &other.chunks)
    }
}
