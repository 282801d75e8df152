//! HDF5 containers: what objects they hold, their attributes, and where the data lies; and
//! planning containers to be written ([`write`]).
//!
//! Knows nothing of checkpoints. Reading is lazy: opening reads headers, never data. Messages,
//! indexes and some filters are parsed by the crate `hdf5-reader`, over our `ReadAt`; what that
//! crate can't do, or does in a way that one bad object hides a thousand good ones, is done here
//! (each place says why). Nothing is allocated that a file merely claims.

mod attribute;
mod block;
mod chunks;
mod dataset;
mod datatype;
mod end;
mod error;
mod file;
pub mod filters;
mod group;
mod header;
mod heap;
mod index;
mod numpy;
mod source;
pub mod write;

pub use attribute::{Attribute, Values};
pub use dataset::{Dataset, Segment, find_file};
pub use datatype::{Class, Datatype, FloatFormat, Member, Padding};
pub use end::End;
pub use file::{Hdf5File, Kind, Object, Tree};
pub use group::{Link, Target};
pub use numpy::Element;

#[cfg(test)]
mod tests;
