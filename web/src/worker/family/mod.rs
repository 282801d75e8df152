//! Model families: which one a checkpoint is of, and what a recipe makes of it.

mod configs;
mod files;
pub(super) mod library;
mod loads;
mod looks;
mod plan;
mod rows;

pub(super) use files::MOST_CONFIG;
pub(super) use looks::{Found, config_name, looks};
pub(super) use plan::{plain, plan, table};
