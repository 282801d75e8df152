//! Applying a recipe to a state dict. No element is read: the tensors that come out are views of
//! those that went in.

mod makers;
mod operations;
mod rules;
mod scaling;
mod state;

pub use rules::{Applied, Configs, Move, Options, Unmatched, apply};
pub use scaling::is_mup;
pub use state::{Item, State};
