//! Rewriting a Cerebras checkpoint: upgrade, repair, dataloader state.

pub mod message;
pub mod page;
pub mod worker;
