//! The filter box.

pub mod page;
pub mod state;
