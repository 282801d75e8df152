//! Run folders: the checkpoints of a training run.

pub mod message;
pub mod model;
pub mod page;
pub mod state;
pub mod worker;
