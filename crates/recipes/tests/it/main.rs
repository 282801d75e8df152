//! Conversions of models, compared with those of the original tools.
#![allow(
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod beyond;
mod cases;
mod configs;
mod contradictions;
mod hostile;
mod optimizers;
mod original;
mod recognised;
mod round_trip;
mod texts;
mod views;
