//! Model families in the convert sheet: the recognised model, its target formats, the table of
//! keys, the rules, the config, and whether the result would load.

mod config;
mod fields;
pub mod files;
mod guided;
mod request;
pub mod rules;
pub mod table;
mod target;
mod verdict;

pub use config::{fill_in, missing_config};
pub use fields::fields;
pub use files::{accept_files, use_families};
pub(crate) use target::choose;
pub use target::{recognition, targets, unchanged_names_note};
pub use verdict::verdict;
