//! Pickles written by Python's libraries, and hostile ones.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod harmless;
mod libraries;
mod lower;
mod reprs;
mod scan;
