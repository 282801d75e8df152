//! The output, files and exit status of the command.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod adapters;
mod attacks;
#[cfg(unix)]
mod bad_inputs;
mod closer;
mod common;
mod convert;
mod corpus;
mod diff;
#[cfg(target_os = "linux")]
mod durable;
mod fixtures;
#[cfg(target_os = "linux")]
mod interrupted;
mod jobs;
mod json;
mod limits;
mod look;
mod looking;
mod losing;
#[cfg(target_os = "linux")]
mod memory;
mod model_casts;
mod model_checkpoint;
mod model_config;
mod model_layouts;
#[cfg(unix)]
mod outputs;
#[cfg(feature = "http")]
mod remote;
mod report_formats;
mod scan;
mod scratch;
mod select;
mod serve;
mod sets;
mod stats;
mod stumbling;
mod summary;
mod tensorflow;
mod toolbox;
mod unfolds;
mod unseen;
mod verify;
