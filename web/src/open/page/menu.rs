//! The menu that opens files, a folder or a URL.

use wasm_bindgen::JsCast as _;
use web_sys::Element;
use yew::prelude::*;

use crate::page::marks::cap;
use crate::page::model::actor::Actor;

/// Label, keyboard shortcut and action of an item.
type MenuItem = (&'static str, &'static str, fn(&Actor));

/// Items of the menu.
const CHOICES: [MenuItem; 3] = [
    ("Files\u{2026}", "O", Actor::choose_files),
    ("Folder\u{2026}", "\u{21e7}O", Actor::choose_folder),
    ("URL\u{2026}", "U", prompt_address),
];

fn prompt_address(actor: &Actor) {
    actor.show_address_prompt(AttrValue::default());
}

/// The menu. It closes when an item is chosen, when it loses the focus, and on Escape.
#[component]
pub fn OpenMenu() -> Html {
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
    let choice = |(name, key, act): (&'static str, &'static str, fn(&Actor))| {
        let close = close.clone();
        let onclick = actor.on(move |actor, _: MouseEvent| {
            close();
            act(actor);
        });
        html! { <button {onclick}>{ name }{ cap(key) }</button> }
    };
    html! {
        <details class="openmenu" id="open-menu" ref={node} {onfocusout} {onkeydown}>
            <summary class="btn">{ "Open " }<span aria-hidden="true">{ "\u{25be}" }</span></summary>
            <div>{ for CHOICES.into_iter().map(choice) }</div>
        </details>
    }
}
