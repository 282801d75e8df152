//! Formats on the fixtures, and sizes that files claim.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod claims;
mod first;
mod scan;
