//! Model families: recipes that convert the state dict and the config of one implementation of a
//! model to those of another.
//!
//! A recipe maps the keys and tensors of one implementation of a model to another; a table maps its
//! config. Both are text files (`docs/recipes.md`, `crates/recipes/configs`); a family needs Rust
//! only for an operation that no other family has. Conversion takes several steps, release by
//! release, if there is no direct converter. Configs keep Python's semantics (YAML 1.1 as in
//! PyYAML, `NaN`, key order), so the output is byte for byte what the original tool writes.

#![allow(missing_docs, reason = "a part of `statelens`: its names are not a public interface")]

pub mod adapter;
pub mod catalog;
pub mod config;
pub mod conversion;
pub mod engine;
mod expression;
pub mod families;
pub mod format;
pub mod inference;
mod kinds;
pub mod language;
pub mod library;
pub mod loads;
pub mod lora;
mod optimizer;
pub mod parts;
pub mod ranks;
pub mod recognise;
mod side;
mod value;
pub mod view;

pub use format::Implementation;
