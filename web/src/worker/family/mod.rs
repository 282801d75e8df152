//! Model families: recognises a checkpoint's model, and applies recipes to it.

mod configs;
mod files;
pub(super) mod library;
mod load_check;
mod plan;
mod recognition;
mod rows;

pub(super) use files::MAX_CONFIG_SIZE;
pub(super) use plan::{plain, plan, table};
pub(super) use recognition::{
    ConversionInputs, config_name, config_of_files, read as read_config, recognise_model,
};
