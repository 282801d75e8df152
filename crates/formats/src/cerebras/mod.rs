//! cerebras

pub mod detect;
pub mod read;
pub mod write;
