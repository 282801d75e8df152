//! The page when it is installed, or kept for when there is no network: what `web/offline.js` tells.

use js_sys::Function;
use wasm_bindgen::prelude::*;
use web_sys::Event;
use yew::prelude::*;

use crate::messages::get;
use crate::page::hooks::use_window_event;

/// Says that a newer version of the page is there, until it is taken or put off. It is never taken
/// by itself: that would close what is open.
#[component]
pub fn NewVersion() -> Html {
    let there = use_state(|| false);
    let later = {
        let there = there.clone();
        Callback::from(move |_: MouseEvent| there.set(false))
    };
    let found = {
        let there = there.clone();
        Callback::from(move |_: Event| there.set(true))
    };
    use_window_event("newversion", found);
    // It may have been found before this listened.
    let now = there.clone();
    use_effect_with((), move |()| now.set(take_over().is_some()));
    if !*there {
        return html! {};
    }
    let reload = Callback::from(|_: MouseEvent| {
        if let Some(take_over) = take_over() {
            let _ = take_over.call0(&JsValue::UNDEFINED);
        }
    });
    html! {
        <aside class="news" role="status">
            <span>{ "A newer version of Statelens is ready. Reloading closes what is open." }</span>
            <button class="btn" onclick={reload}>{ "Reload" }</button>
            <button class="btn quiet" onclick={later}>{ "Later" }</button>
        </aside>
    }
}

/// What puts the newer version in place of this one, once there is one.
fn take_over() -> Option<Function> {
    let window = web_sys::window()?;
    get(&window, "newVersion").dyn_into().ok()
}
