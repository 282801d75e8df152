//! Interface to `web/embed.js`: whether another page offers the files, and messages to that page.

use js_sys::{Array, Function};
use wasm_bindgen::prelude::*;
use web_sys::MessagePort;

use crate::messages::{get, set};
use crate::protocol::PORT;

thread_local! {
    static EMBEDDED: bool = get(&embed(), "on").is_truthy();
}

/// Returns whether the page is embedded: another page offers its files.
pub fn is_embedded() -> bool {
    EMBEDDED.with(|embedded| *embedded)
}

/// Puts a new port for reading offered files into a message for the worker, if it needs one. The
/// port is to be transferred.
pub(crate) fn connect(envelope: &JsValue) -> Option<MessagePort> {
    if get(envelope, PORT).is_undefined() {
        return None;
    }
    let port: MessagePort = call("connect", &Array::new())?.dyn_into().ok()?;
    set(envelope, PORT, &port);
    Some(port)
}

/// Registers the callbacks for offered files, and for the end.
pub(crate) fn start(opened: &JsValue, closed: &JsValue) {
    call("start", &Array::of2(opened, closed));
}

/// Sends a message to the embedding page, if there is one.
pub(crate) fn say(kind: &str, fields: &[(&str, JsValue)]) {
    if is_embedded() {
        let more = js_sys::Object::new();
        fields.iter().for_each(|(name, value)| set(&more, name, value));
        call("say", &Array::of2(&kind.into(), &more));
    }
}

fn call(name: &str, arguments: &Array) -> Option<JsValue> {
    let embed = embed();
    let function: Function = get(&embed, name).dyn_into().ok()?;
    function.apply(&embed, arguments).ok()
}

/// Returns the object that `web/embed.js` provides.
fn embed() -> JsValue {
    get(&js_sys::global(), "embed")
}
