//! Model families: recipes that convert the state dict and the config of one implementation of a
//! model to those of another.

#![allow(missing_docs, reason = "a part of `statelens`: its names are not a public interface")]

pub mod adapter;
pub mod catalog;
pub mod config;
pub mod conversion;
pub mod engine;
pub mod families;
pub mod format;
mod kinds;
pub mod language;
pub mod library;
pub mod loads;
pub mod lora;
mod optimizer;
pub mod parts;
pub mod proposal;
pub mod ranks;
pub mod recognise;
pub mod view;

pub use format::ModelFormat;
