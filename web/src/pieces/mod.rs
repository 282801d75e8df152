//! The files and ranks that hold a checkpoint, and the pieces of a tensor.

pub mod message;
pub mod page;
pub mod state;
pub mod worker;
