//! The tape: the state on an axis of bytes.

pub mod page;
pub mod state;
