//! The shared vocabulary: a checkpoint, independent of its format.
//!
//! A [`Checkpoint`] is a state dict: a tree of [`Value`]s, a table of [`Tensor`]s that say *where*
//! their bytes are ([`Layout`]), and a description of the format. Readers make one from a
//! [`FileSet`]; writers turn one into a [`Plan`]. This crate knows no format and does no I/O: bytes
//! come through [`ReadAt`], which the command and the page implement.
//!
//! # Memory
//!
//! Values are stored in one table and refer to each other by `ValueId`; another occurrence of an
//! object is a `Link`. So cycles are finite, a hostile pickle can't create a tree larger than its
//! bytes, and no code recurses on depth. The fully expanded size is known after opening
//! (`Checkpoint::unfolded`). Above 1,000× the file size, operations that visit everything ask
//! first. Allocations whose size comes from a file go through `checkpoint::room`, which returns an
//! error if the system refuses. Small allocations are not checked: if one fails, the process
//! aborts, and the next run removes its unfinished output.

mod advice;
mod cache;
mod checkpoint;
mod codec;
mod display;
mod dtype;
mod error;
mod finding;
mod float;
mod format;
mod ids;
mod int;
mod interner;
pub mod json;
mod key;
mod leaves;
mod limits;
mod loss;
mod memo;
pub mod numbers;
mod numpy;
pub mod order;
pub mod pieces;
mod plan;
mod progress;
mod rank;
mod read_at;
mod scratch;
pub mod slices;
mod source;
mod tensor;
mod text;
pub mod try_alloc;
mod unfolded;
mod value;
pub mod varint;
mod visible;
mod workers;

pub use advice::{Advice, Phrase, Setting};
pub use cache::{BLOCK, Structure};
pub use checkpoint::{Builder, Checkpoint, NOT_COMPARED, Replica, STORED_TYPE, has_enum};
pub use codec::{hex, natural_order, percent_decode, percent_encode};
pub use display::{
    capitalised, counted, grouped, has_word, listed, place_text, shape_text, size_short, size_text,
};
pub use dtype::{Block, DType, Field, NumpyType};
pub use error::{Error, ErrorKind, Result};
pub use finding::{Finding, FindingKind, Grade, LoaderCall};
pub use float::float_repr;
pub use format::{FormatInfo, FormatTraits, PythonTypes};
pub use ids::{TensorId, ValueId};
pub use int::Int;
pub use interner::{Interner, Recent};
pub use key::{Key, KeyPart, known_key, separator};
pub use leaves::{Leaf, Leaves};
pub use limits::Limits;
pub use loss::{Loss, LossCode, LossKind, Losses};
pub use plan::{
    Checksum, Data, Encode, Encoding, Make, Outcomes, Plan, PlannedFile, Segment, Size,
    StoredChunk, WrittenSegment,
};
pub use progress::{Progress, Unwatched};
pub use rank::rank_in;
pub use read_at::{Memory, ObjectHeader, ReadAt};
pub use scratch::{Area, MemoryScratch, Scratch};
pub use source::{File, FileId, FileSet, Siblings, Span};
pub use tensor::{
    Arithmetic, ByteOrder, Chunk, Chunked, Chunks, CodePacking, CodeValues, Codes, Computed,
    Concat, Deferred, Dequantised, Groups, Layout, Locate, MAX_FIELDS, Offset, Packed, Packing,
    Part, Product, Quantizer, Relocation, Rounding, Scales, Strided, Tensor, TensorClass,
    contiguous_strides, fortran_strides, numel,
};
pub use text::Text;
pub use unfolded::Unfolded;
pub use value::{
    Array, Dict, DictClass, DictKey, Form, Global, List, ListClass, Opaque, Set, Sparse, Tuple,
    TupleClass, Value,
};
pub use visible::{is_hidden, visible};
pub use workers::{OneThread, Workers, both, in_order};
