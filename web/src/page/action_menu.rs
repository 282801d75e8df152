//! A button that opens a menu of actions.

use wasm_bindgen::JsCast as _;
use web_sys::Element;
use yew::prelude::*;

use crate::page::marks::cap;
use crate::page::model::actor::Actor;

/// Label, keyboard shortcut and action of an item.
pub(crate) type MenuItem = (&'static str, &'static str, Callback<Actor>);

#[derive(Properties, PartialEq)]
pub(crate) struct ActionMenuProps {
    /// The id of the menu.
    pub(crate) id: &'static str,
    /// The text of the button; empty if it only has an arrow.
    pub(crate) text: &'static str,
    /// The name of the button for screen readers.
    pub(crate) name: &'static str,
    pub(crate) items: Vec<MenuItem>,
}

/// The menu. It closes when an item is chosen, when it loses the focus, and on Escape.
#[component]
pub(crate) fn ActionMenu(props: &ActionMenuProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let node = use_node_ref();
    let close = {
        let node = node.clone();
        move || {
            if let Some(menu) = node.cast::<Element>() {
                let _ = menu.remove_attribute("open");
            }
        }
    };
    let onfocusout = {
        let (node, close) = (node.clone(), close.clone());
        Callback::from(move |event: FocusEvent| {
            let next = event.related_target().and_then(|next| next.dyn_into::<Element>().ok());
            let inside = node.cast::<Element>().is_some_and(|menu| menu.contains(next.as_deref()));
            if !inside {
                close();
            }
        })
    };
    let onkeydown = {
        let (node, close) = (node.clone(), close.clone());
        Callback::from(move |event: KeyboardEvent| {
            let is_open = node.cast::<Element>().is_some_and(|menu| menu.has_attribute("open"));
            if event.key() == "Escape" && is_open {
                event.prevent_default();
                close();
            }
        })
    };
    let item = |(name, key, act): &MenuItem| {
        let (close, act) = (close.clone(), act.clone());
        let onclick = actor.on(move |actor, _: MouseEvent| {
            close();
            act.emit(actor.clone());
        });
        html! { <button {onclick}>{ *name }if !key.is_empty() { { cap(key) } }</button> }
    };
    let space = if props.text.is_empty() { "" } else { " " };
    html! {
        <details class="openmenu" id={props.id} ref={node} {onfocusout} {onkeydown}>
            <summary class="btn" aria-label={props.name} title={props.name}>{ props.text }{ space }<span aria-hidden="true">{ "\u{25be}" }</span></summary>
            <div>{ for props.items.iter().map(item) }</div>
        </details>
    }
}
