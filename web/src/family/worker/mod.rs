//! Model families: recognises a checkpoint's model, and applies recipes to it.

mod configs;
mod files;
pub(crate) mod library;
mod load_check;
mod plan;
mod recognition;
mod rows;
mod state;

pub(crate) use files::MAX_CONFIG_SIZE;
pub(crate) use plan::{plain, plan, table};
pub(crate) use recognition::{
    ConversionInputs, config_name, config_of_files, config_values, read as read_config,
    recognise_model,
};
pub(crate) use state::FamilyState;
