//! Exporting a tensor as a file.

pub mod page;
pub mod worker;
