//! Model families in the convert sheet: which model it is, where it can go, the table of keys, the
//! rules, the config, and whether it would load.

mod asking;
mod config;
mod fields;
pub mod files;
pub mod rules;
pub mod table;
mod target;
mod verdict;

pub use config::missing_config;
pub use fields::fields;
pub use files::{takes, use_families};
pub use target::{looks, names_stay, targets};
pub use verdict::verdict;
