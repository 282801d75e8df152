//! Interface to `web/files.js`: files that the browser remembers, and files that the desktop opens.

use js_sys::{Array, Function, Promise};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::File;
use yew::prelude::*;

use crate::messages::get;
use crate::page::drop::DroppedFile;

/// Returns whether opened files are to be remembered. These are chosen in a dialog of their own.
pub fn remembers() -> bool {
    call("on", &JsValue::UNDEFINED).is_some_and(|on| on.is_truthy())
}

/// Shows that dialog. Chosen files arrive through [`use_desktop_files`].
pub fn show_file_dialog() {
    call("choose", &JsValue::UNDEFINED);
}

/// Opens pasted files, and files that the desktop opens with the installed page.
#[hook]
pub fn use_desktop_files(open: Callback<Vec<DroppedFile>>) {
    let latest = use_mut_ref(Callback::noop);
    *latest.borrow_mut() = open;
    use_effect_with((), move |()| {
        let opened = Closure::<dyn FnMut(JsValue)>::new(move |files: JsValue| {
            let open = latest.borrow().clone();
            open.emit(dropped(&files));
        });
        call("start", opened.as_ref());
        // The closure is needed as long as the page exists.
        opened.forget();
    });
}

/// Converts a JS array of files.
pub(crate) fn dropped(files: &JsValue) -> Vec<DroppedFile> {
    Array::from(files)
        .iter()
        .filter_map(|file| file.dyn_into::<File>().ok())
        .map(DroppedFile::new)
        .collect()
}

/// Returns the object that `web/files.js` provides.
pub(crate) fn global() -> Option<JsValue> {
    let window = web_sys::window()?;
    Some(get(&window, "files")).filter(JsValue::is_object)
}

pub(crate) fn call(name: &str, argument: &JsValue) -> Option<JsValue> {
    let files = global()?;
    let function: Function = get(&files, name).dyn_into().ok()?;
    function.call1(&files, argument).ok()
}

pub(crate) async fn settled(name: &str, argument: &JsValue) -> Result<JsValue, JsValue> {
    let promise = call(name, argument).and_then(|promise| promise.dyn_into::<Promise>().ok());
    JsFuture::from(promise.ok_or(JsValue::UNDEFINED)?).await
}
