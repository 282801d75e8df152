//! Model families: recipes that turn the state dict and the config of one implementation of a
//! model into those of another.

pub mod config;
pub mod format;

pub use format::Format;
