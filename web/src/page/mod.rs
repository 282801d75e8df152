//! The page: Yew components, one file for each screen, sheet or pane.

pub mod address;
pub mod app;
pub mod arriving;
pub mod art;
pub mod bridge;
pub mod chart;
pub mod code;
pub mod columns;
pub mod compare;
mod controls;
pub mod conversion;
pub mod convert;
pub mod drop;
pub mod edge;
pub mod edits;
pub mod error;
pub mod escape;
pub mod everything;
pub mod family;
pub mod files;
pub mod filter_menu;
pub mod findings;
mod focus;
pub mod history;
pub mod hooks;
pub mod inspector;
pub mod keys;
pub mod links;
pub mod loading;
pub mod looking;
pub mod marks;
pub mod model;
pub mod naming;
pub mod offers;
pub mod offline;
pub mod open_menu;
pub mod panes;
mod picked;
pub mod rail;
pub mod recovery;
pub mod remembered;
pub mod repair;
pub mod rows;
pub mod run;
pub mod running;
pub mod share;
pub mod sheet;
pub mod shortcuts;
pub mod start;
pub mod stopping;
pub mod stored;
pub mod table;
mod taking;
pub mod tape;
mod touch;
pub mod tree;
pub mod treemap;
pub mod understanding;
pub mod verify;
pub mod weights;
pub mod window;
pub mod workspace;

/// Starts the page.
pub fn start() {
    yew::Renderer::<app::App>::new().render();
}
