//! What page and worker share to post each other messages, which are objects of JavaScript.

use js_sys::Object;
use serde::{Serialize, de::DeserializeOwned};
use serde_wasm_bindgen::Serializer;
use wasm_bindgen::prelude::*;

use crate::protocol::MESSAGE;

/// How the locks begin by which tabs tell each other that they are there.
pub const LOCK: &str = "statelens-";

/// How many of very many keys are shown by themselves first: more than fit on a screen.
pub const FIRST: u32 = 100;

/// An object to post, with a message in it.
///
/// 64-bit numbers are `BigInt`s, since not all of them fit a JavaScript number. An error is a defect
/// of this program: every type that a message has can be written.
pub fn envelope(message: &impl Serialize) -> Result<Object, JsValue> {
    let serializer = Serializer::new()
        .serialize_missing_as_null(true)
        .serialize_large_number_types_as_bigints(true);
    let envelope = Object::new();
    set(&envelope, MESSAGE, &message.serialize(&serializer)?);
    Ok(envelope)
}

/// The message in an object that [`envelope`] made; an error for any other.
pub fn message<T: DeserializeOwned>(posted: &JsValue) -> Result<T, JsValue> {
    Ok(serde_wasm_bindgen::from_value(get(posted, MESSAGE))?)
}

/// A property of a JS object; undefined if there is none.
pub fn get(object: &JsValue, name: &str) -> JsValue {
    js_sys::Reflect::get(object, &name.into()).unwrap_or(JsValue::UNDEFINED)
}

/// Sets a property of a plain JS object, which can't fail.
pub fn set(object: &JsValue, name: &str, value: &JsValue) {
    let _ = js_sys::Reflect::set(object, &name.into(), value);
}
