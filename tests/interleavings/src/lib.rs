//! The modules of `statelens` in which threads wait for each other, compiled against shuttle, which
//! runs them under chosen schedules.

#[path = "../../../crates/statelens/src/parallel.rs"]
pub mod parallel;
#[path = "../../../crates/statelens/src/sink.rs"]
pub mod sink;
mod sync;
mod threads;
mod waiting;
