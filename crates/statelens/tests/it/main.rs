//! Tests of the library's public interface.
#![allow(
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod corpus;
mod early;
mod examples;
mod fixtures;
mod flips;
mod jobs;
mod library;
mod modules;
mod parameters;
mod sources;
mod workers;
