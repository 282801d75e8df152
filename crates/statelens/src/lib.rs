//! Model checkpoints: opened, explained, compared and converted, without running anything in them.
//!
//! ```no_run
//! use statelens::{DType, Target, convert, s};
//!
//! # fn main() -> statelens::Result<()> {
//! let checkpoint = statelens::open("model.pt")?;
//! for tensor in checkpoint.tensors() {
//!     println!("{} {} {:?}", tensor.key(), tensor.dtype(), tensor.shape());
//! }
//! let weight = checkpoint.tensor("h.0.attn.weight")?;
//! let corner: Vec<f32> = weight.slice(&s![0..2, ..4])?.read()?;
//! convert(&checkpoint, Target::Safetensors).cast("*.norm.*", DType::F32).write("out.safetensors")?;
//! # Ok(())
//! # }
//! ```
//!
//! [`open`] takes a file, a folder with one checkpoint, or one shard of a set, in any of the formats
//! that Statelens reads; [`open_url`] takes a web address and fetches only the bytes it needs.
//! Opening reads the structure of the files, never the weights, and never runs code from a pickle.
//!
//! # How to read a tensor
//!
//! A [`Tensor`] is a name, a dtype, a shape, and where its bytes are. [`Tensor::read`] gives its
//! values in C order as any [`Element`] that holds all of them exactly: `bfloat16` reads as `f32`,
//! and `f32` as `f64`; if a value would be rounded, it returns an error. [`Tensor::slice`] selects
//! a part without reading it. [`Tensor::each`] passes the bytes to a callback in pieces, for tensors
//! that are larger than memory.
//!
//! # A custom format
//!
//! [`register`] takes a [`Format`], a `static` record. `score` rates, from the first bytes, how
//! likely a file is in this format ([`Score::Magic`] for magic bytes), `open` reads the structure
//! with a [`Builder`](parts::checkpoint::Builder), `writes` makes a
//! [`Plan`](parts::checkpoint::Plan), and `checks` finds checksums. `..Format::named(…)` and
//! `..Writing::named(…)` supply defaults. Then [`open`], [`scan`], [`Checkpoint::verify`], [`diff`],
//! and [`convert`] with [`Target::Registered`] support the format. The example `format.rs` reads a
//! format in 40 lines; `tests/tpack` reads, writes, scans and verifies one in 150. They work with
//! the core's own checkpoints and tensors, [`parts::checkpoint::Checkpoint`] and
//! [`parts::checkpoint::Tensor`].
//!
//! # Layers
//!
//! This crate is a blocking interface to others that do no input or output: state machines that say
//! which bytes they need and are fed with them. For programs that read bytes in another way, the
//! machines are in [`machines`], and the crates that they come from in [`parts`].

mod all_cores;
#[cfg(feature = "http")]
mod blobs;
mod checkpoint;
mod content_hash;
mod conversion;
mod element;
pub mod executor;
pub mod files;
pub mod folder;
pub mod job;
mod job_store;
pub mod listings;
mod open;
pub mod output;
pub mod parallel;
mod reference;
mod refusal;
pub mod remote;
pub mod report;
pub mod scratch;
pub mod sides;
pub mod sink;
mod slice;
pub mod statistics;
mod sync;
mod tensor;
mod threads;
pub mod waiting;
pub mod write;

pub use all_cores::AllCores;
pub use checkpoint::{Checkpoint, ManifestForm, diff, diff_with};
pub use conversion::{ConversionPlan, ConvertBuilder, Target, Written, convert};
pub use element::Element;
pub use files::{PathText, path_text};
pub use open::{Opener, SourceOpener, open, open_url, scan};
pub use reference::listed_keys;
pub use refusal::Refusal;
pub use statelens_checkpoint::{
    DType, Error, ErrorKind, Finding, Grade, Limits, Memory, Progress, ReadAt, Result, Value,
};
pub use statelens_compare::diff::ComparisonReport as Diff;
pub use statelens_compare::diff::DiffOptions;
pub use statelens_compare::verify::VerificationReport as Verdict;
pub use statelens_formats::{Format, Probe, Score, WriteTarget, Writing, register};
pub use statelens_tensor::{Axis, Slice, Taken};
pub use statelens_values::{Statistics, Summary};
pub use tensor::Tensor;

/// State machines without input or output: each says which bytes it needs, and the caller feeds
/// them.
pub mod machines {
    pub use statelens_compare::diff::Comparison;
    pub use statelens_compare::verify::Verification;
    pub use statelens_convert::{Make, Run, Step, TensorWriter};
    pub use statelens_tensor::{Buffer, Gather, Machine, Need, Pour, Receive, drive};
    pub use statelens_tensor::{InOrder, Work};
}

/// The crates that this one is built from.
pub mod parts {
    pub use statelens_checkpoint as checkpoint;
    pub use statelens_compare as compare;
    pub use statelens_convert as convert;
    pub use statelens_describe as describe;
    pub use statelens_formats as formats;
    pub use statelens_quantised as quantised;
    pub use statelens_tensor as tensor;
    pub use statelens_values as values;
}

/// Compiles the code at the start of the README as a doc test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
