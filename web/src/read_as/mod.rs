//! Choosing a dtype for arrays that are stored without one.

pub mod message;
pub mod page;
pub mod worker;
