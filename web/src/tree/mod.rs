//! The tree of modules.

pub mod page;
pub mod state;
