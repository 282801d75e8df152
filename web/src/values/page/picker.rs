//! The menu for the columns of values in the table. The browser stores the choice.

use wasm_bindgen::JsCast;
use web_sys::{Element, HtmlElement, HtmlInputElement};
use yew::prelude::*;

use super::cells::VALUES;
use crate::page::model::actor::Actor;
use crate::page::stored::store_columns;
use crate::state::work::OpenWork;

/// Renders the menu, if there are columns of values.
pub fn picker(actor: &Actor, work: &OpenWork) -> Html {
    if !work.view.weights.any() {
        return html! {};
    }
    let shown = work.view.chosen.unwrap_or(work.view.columns.measures());
    let choice = |at: usize, name: &'static str| {
        let bit = 1u16 << at;
        let onchange = actor.on(move |actor, event: Event| {
            let Some(input) = event.target_dyn_into::<HtmlInputElement>() else { return };
            let next = if input.checked() { shown | bit } else { shown & !bit };
            store_columns(next);
            actor.work(move |work| work.view.chosen = Some(next));
        });
        html! { <label><input type="checkbox" class="cb" checked={shown & bit != 0} {onchange} />{ name }</label> }
    };
    // The menu closes when it loses the focus, and on Escape.
    let onfocusout = Callback::from(|event: FocusEvent| {
        let next = event.related_target().and_then(|next| next.dyn_into::<Element>().ok());
        if let Some(menu) = menu_of(&event)
            && !menu.contains(next.as_deref())
        {
            let _ = menu.remove_attribute("open");
        }
    });
    let onkeydown = Callback::from(|event: KeyboardEvent| {
        if let Some(menu) = menu_of(&event).filter(|menu| menu.has_attribute("open"))
            && event.key() == "Escape"
        {
            event.prevent_default();
            let _ = menu.remove_attribute("open");
            if let Ok(Some(summary)) = menu.query_selector("summary")
                && let Some(summary) = summary.dyn_ref::<HtmlElement>()
            {
                let _ = summary.focus();
            }
        }
    });
    // Labels are not focusable, so pressing one would remove the focus from the menu and close it.
    let onmousedown = Callback::from(|event: MouseEvent| event.prevent_default());
    html! {
        <details class="picker only-l" id="columns" {onfocusout} {onkeydown}>
            <summary class="chip">{ "columns" }</summary>
            <div {onmousedown} role="group" aria-label="Columns">{ for VALUES.into_iter().enumerate().skip(1).map(|(at, (_, name, _))| choice(at, name)) }</div>
        </details>
    }
}

/// Returns the menu that an event occurred in.
fn menu_of(event: &web_sys::Event) -> Option<Element> {
    let target = event.target().and_then(|target| target.dyn_into::<Element>().ok())?;
    target.closest("#columns").ok().flatten()
}
