//! The modules of `statelens` in which threads wait for each other, compiled against shuttle, which
//! runs them under chosen schedules.

// Their unit tests need threads of the system, and run with `statelens`.
#![cfg(not(test))]

#[path = "../../../crates/statelens/src/parallel.rs"]
pub mod parallel;
#[path = "../../../crates/statelens/src/sink.rs"]
pub mod sink;
mod sync;
mod threads;
mod waiting;
