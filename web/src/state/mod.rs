//! The contents of the page, computed from rows: folds, tree, table, filter, tape, formatted
//! numbers.
//!
//! Nothing here depends on the browser, nor on more of the core than the folding of keys.

pub mod dtype;
pub mod fmt;
pub mod task;
pub mod work;
pub mod wrap;

#[cfg(test)]
pub(crate) mod sample;
