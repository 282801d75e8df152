//! Tests of the library's public interface.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod early;
mod examples;
mod jobs;
mod library;
mod modules;
mod parameters;
mod sources;
mod workers;
