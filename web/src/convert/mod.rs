//! Converting the open checkpoint.

pub mod message;
pub mod page;
pub mod state;
pub mod worker;
