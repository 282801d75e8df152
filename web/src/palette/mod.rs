//! The command palette: one field over all actions and keys.

pub mod page;
pub mod state;
