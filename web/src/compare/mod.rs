//! Comparing two checkpoints, or two tensors.

pub mod message;
pub mod model;
pub mod page;
pub mod state;
pub mod worker;
