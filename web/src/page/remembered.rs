//! Files that the browser remembers, and those that the desktop opens: what `web/files.js` does.

use js_sys::{Array, Function, Promise};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::File;
use yew::prelude::*;

use crate::messages::get;
use crate::page::drop::Dropped;

/// True if files that are opened are to be remembered, which a dialog of its own does.
#[must_use]
pub fn remembers() -> bool {
    call("on", &JsValue::UNDEFINED).is_some_and(|on| on.is_truthy())
}

/// Shows that dialog; what is chosen comes as what the desktop opens does.
pub fn choose() {
    call("choose", &JsValue::UNDEFINED);
}

/// Opens what is pasted, and what the desktop opens with the installed page.
#[hook]
pub fn use_desktop_files(open: Callback<Vec<Dropped>>) {
    let latest = use_mut_ref(Callback::noop);
    *latest.borrow_mut() = open;
    use_effect_with((), move |()| {
        let opened = Closure::<dyn FnMut(JsValue)>::new(move |files: JsValue| {
            let open = latest.borrow().clone();
            open.emit(dropped(&files));
        });
        call("start", opened.as_ref());
        // It listens for as long as the page is there.
        opened.forget();
    });
}

/// An array of files as files to open.
pub(super) fn dropped(files: &JsValue) -> Vec<Dropped> {
    Array::from(files)
        .iter()
        .filter_map(|file| file.dyn_into::<File>().ok())
        .map(Dropped::new)
        .collect()
}

/// What `web/files.js` gives.
pub(super) fn global() -> Option<JsValue> {
    let window = web_sys::window()?;
    Some(get(&window, "files")).filter(JsValue::is_object)
}

pub(super) fn call(name: &str, argument: &JsValue) -> Option<JsValue> {
    let files = global()?;
    let function: Function = get(&files, name).dyn_into().ok()?;
    function.call1(&files, argument).ok()
}

pub(super) async fn settled(name: &str, argument: &JsValue) -> Result<JsValue, JsValue> {
    let promise = call(name, argument).and_then(|promise| promise.dyn_into::<Promise>().ok());
    JsFuture::from(promise.ok_or(JsValue::UNDEFINED)?).await
}
