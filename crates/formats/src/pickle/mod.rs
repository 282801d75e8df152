//! pickle

pub mod detect;
pub mod read;
