//! Pickles as data: a machine that builds values and calls nothing, and an encoder.

mod encode;
mod escapes;
mod graph;
mod machine;
pub mod opcode;
mod python2;

pub use encode::{Encoder, Frame, Memo, TupleLen};
pub use graph::{Broken, GlobalUse, Node, NodeId, Object, Pickle};
pub use machine::read;
