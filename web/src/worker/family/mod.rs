//! Model families: recognises a checkpoint's model, and applies recipes to it.

mod configs;
mod files;
pub(super) mod library;
mod loads;
mod looks;
mod plan;
mod rows;

pub(super) use files::MOST_CONFIG;
pub(super) use looks::{ConversionInputs, config_beside, config_name, looks, read as read_config};
pub(super) use plan::{plain, plan, table};
