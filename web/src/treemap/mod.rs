//! The treemap of bytes.

pub mod page;
pub mod state;
