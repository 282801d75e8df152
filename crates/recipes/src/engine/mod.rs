//! Applying a recipe to a state dict. No element is read: the tensors that come out are views of
//! those that went in.

mod assemble;
mod carried;
mod makers;
mod operations;
mod rules;
mod scaling;
mod state;

pub use assemble::Assembly;
pub(crate) use carried::{METADATA, dict, entries, metadata};
pub(crate) use rules::lookup;
pub use rules::{Applied, ApplyOptions, Configs, Move, Unmatched, apply};
pub use scaling::is_mup;
pub use state::{State, StateValue};
