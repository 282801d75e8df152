//! Pickles as Python's libraries write them, and hostile ones.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod harmless;
mod libraries;
mod lower;
mod reprs;
mod scan;
