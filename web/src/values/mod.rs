//! Statistics and values of tensors.

pub mod message;
pub mod model;
pub mod page;
pub mod state;
