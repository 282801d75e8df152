//! Where the bytes of a tensor are.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::{FileSet, Result, Span, Tensor, Text};

/// Where the bytes of a tensor are. Says nothing about what they mean: that is the tensor's
/// dtype, shape and byte order.
#[derive(Debug, Clone, PartialEq)]
pub enum Layout {
    /// Dense C order in one run of a file.
    Span(Span),
    /// A view of a storage.
    Strided(Strided),
    /// Pieces that may be filtered (compressed, shuffled), each decoded as a whole.
    Chunked(Chunked),
    /// One compressed stream that holds the dense bytes: a deflated member of a zip file.
    Packed(Packed),
    /// Parts one after the other along an axis.
    Concat(Concat),
    /// Somewhere in a run of a file that says itself where: looked up when the bytes are needed.
    Deferred(Deferred),
    /// What comes of another tensor's elements, one by one.
    Computed(Arc<Computed>),
    /// Every element is this one; its length is the stored dtype's itemsize.
    Fill(Arc<[u8]>),
    /// The dense bytes themselves, where the file has them in its structure.
    Inline(Arc<[u8]>),
    /// There are none: a meta tensor, a file that was not given. The text says why.
    Missing(Text),
}

/// A view of a storage, as torch has them. Readers check that every element lies inside.
#[derive(Debug, Clone, PartialEq)]
pub struct Strided {
    /// The storage: a `Span`, `Packed`, `Inline` or `Fill`; or a `Concat` of parts, which is how a
    /// storage in chunks says its own shape. Its elements count in C order.
    pub storage: Arc<Layout>,
    /// Length of the storage in bytes.
    pub storage_len: u64,
    /// First element, in elements from the start of the storage.
    pub offset: u64,
    /// Elements between neighbours, for each dimension; may be 0 or negative.
    pub strides: Vec<i64>,
}

/// An array in chunks of one shape; chunks at the far edges are whole and padded.
#[derive(Clone)]
pub struct Chunked {
    /// Shape of a chunk, in elements, as many dimensions as the tensor.
    pub shape: Vec<u64>,
    /// The chunks and their filters.
    pub chunks: Arc<dyn Chunks>,
}

/// The chunks of an array: found when they are needed, not when the file is opened.
pub trait Chunks: fmt::Debug + Send + Sync {
    /// All stored chunks, in any order. One that is not stored holds [`Chunks::fill`].
    fn table(&self, files: &FileSet) -> Result<Vec<Chunk>>;

    /// Undoes the filters: `stored` are the bytes of the chunk in the file; `out` is emptied
    /// and receives exactly the chunk's elements in C order, as the file's byte order has them.
    fn decode(&self, chunk: &Chunk, stored: &[u8], out: &mut Vec<u8>) -> Result<()>;

    /// The element that fills chunks that are not stored; empty means zeros.
    fn fill(&self) -> &[u8];

    /// The filters in the order they were applied, for people: `lz4`, `shuffle, gzip 4`, or
    /// empty.
    fn describe(&self) -> String;
}

/// One stored chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Its first element in the array, one number for each dimension.
    pub at: Vec<u64>,
    /// Where its bytes are.
    pub span: Span,
    /// Filters that were skipped for this chunk, as HDF5 has it: bit n for the n-th filter.
    pub mask: u32,
}

/// A compressed stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packed {
    /// Where the compressed bytes are.
    pub span: Span,
    /// How they are compressed.
    pub packing: Packing,
    /// Bytes at the start of the decompressed stream that do not belong to it: a header.
    pub skip: u64,
    /// Length once decompressed, without those.
    pub len: u64,
}

/// How a stream is compressed: the methods of members of a zip archive that Python's `zipfile` reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Packing {
    /// Raw deflate (RFC 1951), method 8.
    Deflate,
    /// bzip2, method 12.
    Bzip2,
    /// LZMA behind its properties, method 14.
    Lzma,
}

impl Packing {
    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Deflate => "deflate",
            Self::Bzip2 => "bzip2",
            Self::Lzma => "LZMA",
        }
    }

    /// Returns the past participle of the compression for messages, for example `deflated`.
    pub fn past(self) -> &'static str {
        match self {
            Self::Deflate => "deflated",
            Self::Bzip2 => "compressed with bzip2",
            Self::Lzma => "compressed with LZMA",
        }
    }
}

/// Parts one after the other along an axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Concat {
    /// The axis.
    pub axis: usize,
    /// The parts; their shapes are equal but for the axis, where they add up to the whole.
    pub parts: Vec<Part>,
}

/// A part of a [`Concat`].
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// Its shape.
    pub shape: Vec<u64>,
    /// Where it is.
    pub layout: Layout,
}

/// Elements that are computed from those of another tensor as they are read. The tensor that has
/// this layout is little-endian, of the same shape, and stored as the dtype of [`Computed::of`].
#[derive(Debug, Clone, PartialEq)]
pub struct Computed {
    /// The tensor whose logical elements go in.
    pub of: Tensor,
    /// What is done to each, in order; each step is rounded to the dtype, as torch does it.
    pub steps: Vec<Arithmetic>,
    /// What is added to each, after that.
    pub product: Option<Product>,
}

/// The product of two thin matrices, which are held in memory while it is computed.
#[derive(Debug, Clone, PartialEq)]
pub struct Product {
    /// The left one, `[rows, rank]`.
    pub left: Tensor,
    /// The right one, `[rank, columns]`.
    pub right: Tensor,
    /// What each element of the product is multiplied by.
    pub scale: f64,
    /// What is rounded to a dtype of 16 bits.
    pub rounding: Rounding,
}

/// What of a [`Product`] that is added is rounded to a dtype of 16 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounding {
    /// The product, the product times the scale, and the sum.
    Each,
    /// The product times the scale, and the sum.
    Scaled,
    /// The sum.
    Sum,
}

/// One step of a [`Computed`] element.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arithmetic {
    /// The element and this.
    Add(f64),
    /// The element times this.
    Multiply(f64),
    /// The element by this.
    Divide(f64),
    /// Zero where the element is not a number.
    NanToZero,
    /// A random number instead: mean 0, this standard deviation. The same for the same seed and
    /// place, so that reading twice gives the same.
    Normal {
        /// The standard deviation.
        deviation: f64,
        /// Which numbers.
        seed: u64,
    },
    /// A random number between minus this and this instead.
    Uniform {
        /// The bound.
        bound: f64,
        /// Which numbers.
        seed: u64,
    },
}

/// A run of a file that holds dense elements and, beside them, where they are: one of the many
/// small archives that a distributed checkpoint is made of. Looking into each when the file is
/// opened would cost as many reads.
#[derive(Clone)]
pub struct Deferred {
    span: Span,
    locate: Arc<dyn Locate>,
    found: Arc<OnceLock<Layout>>,
}

/// Finds the elements in a [`Deferred`] run.
pub trait Locate: fmt::Debug + Send + Sync {
    /// Where the elements of an array of `shape` are; never a [`Layout::Deferred`]. Fails if what
    /// lies there has another shape, dtype or byte order than the tensor.
    fn locate(&self, files: &FileSet, span: Span, shape: &[u64]) -> Result<Layout>;
}

impl Computed {
    /// The layouts of all that it is computed from.
    pub fn layouts(&self) -> impl Iterator<Item = &Layout> {
        let factors = self.product.iter().flat_map(|product| [&product.left, &product.right]);
        std::iter::once(&self.of).chain(factors).map(|tensor| &tensor.layout)
    }
}

impl Deferred {
    /// What `locate` will find in `span`.
    pub fn new(span: Span, locate: Arc<dyn Locate>) -> Self {
        Self { span, locate, found: Arc::new(OnceLock::new()) }
    }

    /// The run of the file, more than the elements.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Where the elements are; looked up once. See [`Locate::locate`].
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
    /// The same run, looked at in the same way; not what is found there.
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
    /// The same chunks of the same file: identity, for the table is not read to compare.
    fn eq(&self, other: &Self) -> bool {
        self.shape == other.shape && Arc::ptr_eq(&self.chunks, &other.chunks)
    }
}
