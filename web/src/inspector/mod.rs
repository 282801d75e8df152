//! The inspector: details of the selected row.

pub mod message;
pub mod page;
pub mod worker;
