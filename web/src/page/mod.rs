//! The page: the root component, and the components and hooks that features share.

pub(crate) mod action_menu;
pub mod app;
pub mod bars;
pub mod bridge;
pub mod chart;
pub mod choice;
pub mod controls;
pub mod drop;
pub mod drop_target;
pub mod edge;
pub mod embed;
pub mod embedding;
pub mod error;
pub mod escape;
pub mod fetch_limit;
pub mod findings;
pub mod focus;
pub mod grade;
pub mod history;
pub mod hooks;
pub mod kept_outputs;
pub mod keys;
pub mod marks;
pub mod model;
pub mod offline;
pub mod pair;
pub mod panes;
pub mod recovery;
pub mod rows;
pub mod running;
pub mod sheet;
pub mod shortcuts;
pub mod stop_dialog;
pub mod stored;
pub mod stored_files;
pub mod text_width;
pub mod viewport;
pub mod workspace;
pub mod wrapping_key;

pub fn start() {
    yew::Renderer::<app::App>::new().render();
}
