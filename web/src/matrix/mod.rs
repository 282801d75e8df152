//! The matrix screen: heatmap, ranked rows, singular values.

pub mod message;
pub mod model;
pub mod page;
pub mod state;
pub mod worker;
