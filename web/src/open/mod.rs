//! Opening checkpoints: the start screen, addresses, progress.

pub mod message;
pub mod page;
pub mod worker;
