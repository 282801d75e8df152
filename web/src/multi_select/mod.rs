//! Several rows picked for one action.

pub mod page;
pub mod state;
