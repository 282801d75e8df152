//! From a [`Layout`](statelens_checkpoint::Layout) to *logical bytes*: the elements of a tensor
//! in C order, little-endian, dense, in its own dtype, wherever and however a file has them.
//!
//! [`Gather`] is a state machine: it says which span it needs, is fed those bytes in pieces of
//! any size, and passes logical bytes on. It reads nothing itself, so the command feeds it from
//! a file, the page from a stream, and a test from a slice cut at every possible place.
//!
//! Every machine of the core is driven in one way, as a [`Machine`]; [`drive`] does it for callers
//! that may block, and [`drain`] and [`elements`] are that for a tensor.

mod bands;
mod blocks;
mod cast;
pub mod crc;
mod drain;
mod gather;
mod machine;
mod pieces;
mod pour;
mod runs;
mod scatter;
mod shape;
mod slice;
mod sliced;
mod stored;
mod transform;
mod unpack;
mod view;

pub use blocks::{decodes, dequantized, numbers};
pub use cast::{Cast, CastReport, Narrowing, plain};
pub use drain::{drain, drain_range, elements};
pub use gather::{BUDGET, Gather, grain, verbatim_span};
pub use machine::{BUFFER, Buffer, Machine, Need, Out, drive};
pub use pour::{Pour, Receive};
pub use slice::{Axis, Slice, Taken};
pub use sliced::{ElementPlaces, sliced};
pub use unpack::{unpacked, unpacked_start};

#[cfg(test)]
mod tests;
