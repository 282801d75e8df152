//! Pickles as data: a machine that builds values and calls nothing, and an encoder.

mod encode;
pub mod opcode;

pub use encode::{Encoder, Frame, Memo, TupleLen};
