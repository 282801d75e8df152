//! The output, files and exit status of the command.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod action;
mod adapters;
mod array_classes;
mod attacks;
#[cfg(unix)]
mod bad_inputs;
mod basics;
mod common;
mod convert;
mod diff;
#[cfg(target_os = "linux")]
mod durable;
mod escaping;
mod expansion;
mod faq;
mod folder_models;
mod folders;
#[cfg(feature = "http")]
mod hub;
#[cfg(target_os = "linux")]
mod interrupted;
mod jobs;
mod json;
mod limits;
mod losses;
#[cfg(target_os = "linux")]
mod memory;
mod model_casts;
mod model_checkpoint;
mod model_config;
mod model_layouts;
#[cfg(unix)]
mod odd_names;
mod one_answer;
mod outputs;
mod quantised;
#[cfg(feature = "http")]
mod remote;
mod report_formats;
mod rows;
mod run_folders;
mod sarif;
mod scan;
mod scratch;
mod select;
mod serve;
mod sets;
mod sharded;
mod stats;
mod summary;
mod tensor_diff;
mod tensorflow;
mod toolbox;
mod usability;
mod verify;
