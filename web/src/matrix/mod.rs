//! The matrix screen: heatmap, ranked rows, singular values.

pub mod message;
pub mod page;
pub mod state;
pub mod worker;
