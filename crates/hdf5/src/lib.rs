//! HDF5 containers: reads objects, attributes and the location of data, and plans containers to be
//! written ([`write`]).
//!
//! Independent of checkpoints. Reading is lazy: opening reads headers, never data. The crate
//! `hdf5-reader` parses messages, indexes and some filters, reading through our `ReadAt`. What it
//! can't do, or does in such a way that one bad object hides a thousand good ones, is implemented
//! here, with the reason given in each place. Nothing is allocated on the mere claim of a file.

#![allow(missing_docs, reason = "a part of `statelens`: its names are not a public interface")]

mod block;
mod datatype;
mod decode;
mod error;
mod file;
pub mod filters;
mod header;
mod heap;
mod index;
mod numpy;
mod source;
pub mod write;

pub use datatype::{Class, Datatype, FloatFormat, Member};
pub use decode::Padding;
pub use file::attribute::{Attribute, AttributeValues};
pub use file::browse::Browse;
pub use file::dataset::{Dataset, ExternalSegment, find_file};
pub use file::end::EndMismatch;
pub use file::link::{External, Followed, Link, LinkValue};
pub use file::{Groups, Hdf5File, Object, ObjectKind, ObjectTree};
pub use numpy::ElementType;

/// The code of an error about data that is stored in a way that is not supported, such as with an
/// unknown filter: it is not damaged.
pub const NOT_DECODED: &str = "not-decoded";

#[cfg(test)]
mod tests;
