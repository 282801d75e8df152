//! Sharing a summary by a link or a file.

pub mod message;
pub mod page;
pub mod state;
pub mod worker;
