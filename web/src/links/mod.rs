//! Links to the current view.

pub mod page;
pub mod state;
