//! Moving the keyboard focus.

use wasm_bindgen::JsCast as _;
use web_sys::HtmlInputElement;

use crate::page::model::actor::Actor;

/// Moves the focus from the filter box to the table, and selects the first row if none is selected.
pub(crate) fn enter_table(actor: &Actor) {
    let grid = web_sys::window()
        .and_then(|window| window.document())
        .and_then(|document| document.query_selector("#work [role=grid]").ok().flatten())
        .and_then(|node| node.dyn_into::<web_sys::HtmlElement>().ok());
    if let Some(grid) = grid {
        let _ = grid.focus();
        // Checked when the state changes, not here: the last change of the filter may not be
        // applied yet.
        actor.work(|work| {
            if work.cursor().is_none() {
                work.step_to_end(false);
            }
        });
    }
}

/// Focuses the filter box.
pub(crate) fn focus_filter() -> bool {
    focus("filter")
}

/// Focuses an input and selects its text. Returns whether it exists and took the focus.
pub(crate) fn focus(id: &str) -> bool {
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
