//! Pickles as data: a machine that builds values without calling anything, and an encoder.
//!
//! [`read`] runs the opcodes and builds a graph of objects ([`Pickle`]); [`Pickle::lower`] converts
//! it to the tree of a checkpoint, recognising the tensors, arrays and objects of the libraries
//! that write checkpoints by their structure. Nothing that a pickle names is ever imported, called
//! or evaluated: unrecognised objects remain inert descriptions.

#![allow(missing_docs, reason = "a part of `statelens`: its names are not a public interface")]

mod encode;
mod escapes;
mod graph;
mod held;
mod lower;
mod machine;
mod names;
pub mod opcode;
mod pathlib;
mod python2;
mod repr;
mod scan;
mod storages;
mod stream;

pub use encode::{Encoder, Frame, MemoId, TupleLen};
use graph::Oddity;
pub use graph::{Broken, BuiltObject, Call, GlobalUse, Items, Node, NodeId, Pickle};
pub use lower::{Lowered, view};
pub use machine::numbers::long as parse_long;
pub use machine::{read, read_joined};
pub use names::is_dangerous;
pub use pathlib::path_text;
pub use repr::{bytes_repr, complex_repr, text_repr};
pub use scan::{DTypeElements, ScanOptions, is_harmless, scan_pickles};
pub use storages::{NoStorages, STORAGE_CLASSES, Storage, Storages, storage_dtype};
pub use stream::{PickleStream, is_stream, read_stream};
