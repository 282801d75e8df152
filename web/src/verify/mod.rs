//! Verifying the open checkpoint: checksums, values, hashes, a manifest.

pub mod message;
pub mod model;
pub mod page;
pub mod worker;
