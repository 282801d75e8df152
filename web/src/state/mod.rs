//! The contents of the page, computed from rows: folds, tree, table, filter, tape, formatted
//! numbers.
//!
//! Nothing here depends on the browser, nor on more of the core than the folding of keys.

pub mod compare;
pub mod dtype;
pub mod filter;
pub mod fit;
pub mod fmt;
pub mod glob;
pub mod link;
pub mod matrix;
pub mod picked;
mod picking;
pub mod rail;
pub mod run;
pub mod search;
pub mod share;
pub mod table;
pub mod tape;
pub mod task;
pub mod terms;
pub mod tree;
pub mod treemap;
pub mod values_panel;
pub mod view;
pub mod weights;
pub mod work;

#[cfg(test)]
pub(crate) mod sample;
