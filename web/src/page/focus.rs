//! Where the keyboard is.

use wasm_bindgen::JsCast as _;
use web_sys::HtmlInputElement;

use crate::page::model::actor::Actor;

/// Leaves the filter box for the table, at its first row if none was looked at.
pub(super) fn enter_table(actor: &Actor) {
    let grid = web_sys::window()
        .and_then(|window| window.document())
        .and_then(|document| document.query_selector("#work [role=grid]").ok().flatten())
        .and_then(|node| node.dyn_into::<web_sys::HtmlElement>().ok());
    if let Some(grid) = grid {
        let _ = grid.focus();
        // Asked there and not here: a letter of the filter may not be drawn yet.
        actor.work(|work| {
            if work.cursor().is_none() {
                work.step_to_end(false);
            }
        });
    }
}

/// Puts the cursor into the filter box.
pub(super) fn focus_filter() -> bool {
    focus("filter")
}

/// Focuses a box that there may be.
pub(super) fn focus(id: &str) -> bool {
    let input = web_sys::window()
        .and_then(|window| window.document())
        .and_then(|document| document.get_element_by_id(id))
        .and_then(|node| node.dyn_into::<HtmlInputElement>().ok());
    match input {
        Some(input) => {
            input.select();
            input.focus().is_ok()
        }
        None => false,
    }
}
