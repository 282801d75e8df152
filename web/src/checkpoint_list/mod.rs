//! The list of the checkpoints of a drop.

pub mod page;
pub mod state;
