//! The table of keys.

pub mod page;
pub mod state;
