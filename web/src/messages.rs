//! How page and worker post messages to each other as JavaScript objects.

use js_sys::Object;
use serde::{Serialize, de::DeserializeOwned};
use serde_wasm_bindgen::Serializer;
use wasm_bindgen::prelude::*;

use crate::protocol::MESSAGE;

/// Prefix of the names of the Web Locks by which tabs announce that they are alive.
pub const LOCK: &str = "statelens-";

/// Number of keys shown first while a checkpoint with very many keys is still opening: more than
/// fit on a screen.
pub const PREVIEW_KEYS: u32 = 100;

/// Wraps a message in an object that can be posted.
///
/// 64-bit numbers become `BigInt`s, since not all of them fit a JavaScript number. An error is a
/// defect of this program: every message type is serializable.
pub fn envelope(message: &impl Serialize) -> Result<Object, JsValue> {
    let serializer = Serializer::new()
        .serialize_missing_as_null(true)
        .serialize_large_number_types_as_bigints(true);
    let envelope = Object::new();
    set(&envelope, MESSAGE, &message.serialize(&serializer)?);
    Ok(envelope)
}

/// Reads the message from an object made by [`envelope`]; an error for any other object.
pub fn message<T: DeserializeOwned>(posted: &JsValue) -> Result<T, JsValue> {
    Ok(serde_wasm_bindgen::from_value(get(posted, MESSAGE))?)
}

/// Returns a property of a JS object; undefined if the object does not have it.
pub fn get(object: &JsValue, name: &str) -> JsValue {
    js_sys::Reflect::get(object, &name.into()).unwrap_or(JsValue::UNDEFINED)
}

/// Sets a property of a plain JS object, which can't fail.
pub fn set(object: &JsValue, name: &str, value: &JsValue) {
    let _ = js_sys::Reflect::set(object, &name.into(), value);
}
