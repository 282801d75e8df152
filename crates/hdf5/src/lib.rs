//! HDF5 containers: what objects they hold, their attributes, and where the data lies; and
//! planning containers to be written ([`write`]).
//!
//! Knows nothing of checkpoints. Reading is lazy: opening reads headers, never data. Messages,
//! indexes and some filters are parsed by the crate `hdf5-reader`, over our `ReadAt`; what that
//! crate can't do, or does in a way that one bad object hides a thousand good ones, is done here
//! (each place says why). Nothing is allocated that a file merely claims.

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

#[cfg(test)]
mod tests;
