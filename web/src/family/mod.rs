//! Converting a model between the implementations of its family.

pub mod message;
pub mod page;
pub mod state;
pub mod worker;
