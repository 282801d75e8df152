//! Plans of outputs: their sizes, losses and previews.

pub mod worker;
