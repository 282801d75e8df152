//! Converts a [`Layout`](statelens_checkpoint::Layout) to *logical bytes*: the elements of a tensor
//! in C order, little-endian, dense, in its own dtype, however the file stores them.
//!
//! [`Gather`] is a state machine: it names the span it needs, is fed those bytes in pieces of any
//! size, and passes on logical bytes. It reads nothing itself, so the command feeds it from a file,
//! the page from a stream, and a test from a slice cut at every possible place.
//!
//! Every state machine of the core implements [`Machine`]. [`drive`] runs one for callers that may
//! block; [`drain`] and [`elements`] do so for a tensor.

#![allow(missing_docs, reason = "a part of `statelens`: its names are not a public interface")]

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
mod widest;
mod work;

pub use blocks::{
    ScaleFormat, block_scales, dequantized, dequantized_block, has_floats, lost_scales, numbers,
    scales_in,
};
pub use cast::{Cast, CastReport, Narrowing, decode_f4, plain, widen_f16};
pub use drain::{drain, drain_range, elements};
pub use gather::{BUDGET, Gather, grain, verbatim_span, verbatim_spans};
pub use machine::{BUFFER, Buffer, Machine, Need, Out, drive};
pub use pour::{Pour, Receive};
pub use slice::{Axis, Slice, Taken};
pub use sliced::{ElementPlaces, sliced};
pub use unpack::{unpacked, unpacked_start};
pub use widest::widest;
pub use work::{InOrder, Pieces, Work, WorkSums};

#[cfg(test)]
mod tests;
