//! Compares checkpoints: two with each other ([`diff`]), one with its checksums or a manifest
//! ([`verify`]), with what a trainer expects ([`check`]), an output with its source ([`ReadBack`]),
//! the checkpoints of a run ([`runs`]), and the files of a folder ([`mod@folder`]).
//!
//! Results are reports, as data and as JSON; nothing is written to a terminal or a file.

pub mod check;
pub mod diff;
pub mod folder;
mod read_back;
pub mod runs;
pub mod sarif;
pub mod verify;

pub use read_back::ReadBack;
