//! Weights that are stored as codes and scales, shown as tensors of numbers.

pub mod message;
pub mod page;
pub mod worker;
