//! Tests of formats on the fixtures, and of sizes that files claim.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod attacks3;
mod claims;
#[path = "../../src/counted.rs"]
mod counted;
mod first;
mod scan;
