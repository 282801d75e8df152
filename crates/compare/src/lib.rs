//! Compares checkpoints: two with each other ([`diff`]), one with its checksums or a manifest
//! ([`verify`]), with what a trainer expects ([`check`]), an output with its source ([`ReadBack`]),
//! and the checkpoints of a run ([`runs`]).
//!
//! Results are reports, as data and as JSON; nothing is written to a terminal or a file.

pub mod check;
pub mod diff;
mod read_back;
pub mod runs;
pub mod verify;

pub use read_back::ReadBack;
