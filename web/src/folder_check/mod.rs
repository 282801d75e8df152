//! Checking a folder or a repository by the rules of `statelens check`.

pub mod message;
pub mod page;
pub mod worker;
