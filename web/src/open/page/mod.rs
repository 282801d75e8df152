//! The start screen, the address dialog and the loading screen.

pub mod address;
pub mod illustration;
pub mod loading;
mod made_examples;
pub mod menu;
mod pasted;
pub mod start;
pub mod start_list;
