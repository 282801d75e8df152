//! What the model is.

pub mod message;
pub mod page;
pub mod worker;
