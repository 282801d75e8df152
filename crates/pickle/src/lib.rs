//! Pickles as data: a machine that builds values and calls nothing, and an encoder.
//!
//! [`read`] runs the opcodes into a graph of objects ([`Pickle`]); [`Pickle::lower`] makes the
//! tree of a checkpoint of it, with the tensors, arrays and objects of the libraries that write
//! checkpoints recognised by their shape. Nothing that a pickle names is ever imported, called
//! or evaluated: what is not recognised stays an inert description.

mod encode;
mod escapes;
mod graph;
mod lower;
mod machine;
mod names;
pub mod opcode;
mod python2;
mod repr;
mod scan;
mod storages;
mod stream;

pub use encode::{Encoder, Frame, MemoId, TupleLen};
use graph::Oddity;
pub use graph::{Broken, BuiltObject, Call, GlobalUse, Items, Node, NodeId, Pickle};
pub use lower::{Lowered, view};
pub use machine::{read, read_joined};
pub use scan::{ScanOptions, is_harmless, scan_pickles};
pub use storages::{NoStorages, Storage, Storages, storage_dtype};
pub use stream::{PickleStream, is_stream, read_stream};
