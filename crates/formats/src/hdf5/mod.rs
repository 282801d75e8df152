//! hdf5

pub mod detect;
pub mod read;
