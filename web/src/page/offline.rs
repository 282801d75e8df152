//! Updates of the installed or cached page, as reported by `web/offline.js`.

use js_sys::Function;
use wasm_bindgen::prelude::*;
use web_sys::Event;
use yew::prelude::*;

use crate::messages::get;
use crate::page::hooks::use_window_event;

/// A notice that a newer version of the page is available, shown until the user reloads or
/// dismisses it. The page never reloads by itself, since that would close the open checkpoint.
#[component]
pub fn NewVersion() -> Html {
    let available = use_state(|| false);
    let dismiss = {
        let available = available.clone();
        Callback::from(move |_: MouseEvent| available.set(false))
    };
    let found = {
        let available = available.clone();
        Callback::from(move |_: Event| available.set(true))
    };
    use_window_event("newversion", found);
    // The version may have been found before this component listened.
    let now = available.clone();
    use_effect_with((), move |()| now.set(take_over().is_some()));
    if !*available {
        return html! {};
    }
    let reload = Callback::from(|_: MouseEvent| {
        if let Some(take_over) = take_over() {
            let _ = take_over.call0(&JsValue::UNDEFINED);
        }
    });
    html! {
        <aside class="news" role="status">
            <span>{ "A newer version of Statelens is ready. Reloading closes the open checkpoint." }</span>
            <button class="btn" onclick={reload}>{ "Reload" }</button>
            <button class="btn quiet" onclick={dismiss}>{ "Later" }</button>
        </aside>
    }
}

/// Returns the function that switches to the newer version, once there is one.
fn take_over() -> Option<Function> {
    let window = web_sys::window()?;
    get(&window, "newVersion").dyn_into().ok()
}
