//! Applies a recipe to a state dict. Reads no elements: the new tensors are views of the old ones.

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
pub use rules::{Applied, ApplyOptions, Configs, Move, MoveKind, RULE_CODE, Unmatched, apply};
pub use scaling::is_mup;
pub use state::{State, StateValue};
