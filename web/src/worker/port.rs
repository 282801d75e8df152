//! The environment of the worker: the global object, the clock, and posting replies.

use js_sys::Array;
use wasm_bindgen::prelude::*;
use web_sys::{DedicatedWorkerGlobalScope, File};

use crate::messages::{envelope, get, set};
use crate::protocol::{FILES, FromWorker, HANDLE, JobMessage};

/// Returns the worker's global object.
pub fn scope() -> DedicatedWorkerGlobalScope {
    js_sys::global().unchecked_into()
}

/// Returns milliseconds since the worker began.
pub fn now() -> f64 {
    scope().performance().map_or(0.0, |clock| clock.now())
}

/// Posts a reply of a job to the page, with finished files.
pub(crate) fn post_as(session: u32, job: u32, message: &FromWorker, files: &JsValue) {
    let envelope = match envelope(&JobMessage { session, job, message }) {
        Ok(envelope) => envelope,
        Err(error) => wasm_bindgen::throw_val(error),
    };
    set(&envelope, HANDLE, files);
    // Messages are plain values and blobs, so cloning them can't fail.
    let _ = scope().post_message(&envelope);
}

/// Returns the files sent with a message.
pub(crate) fn files_of(data: &JsValue) -> Vec<File> {
    // A message without files has no list of them.
    let files: Array = get(data, FILES).dyn_into().unwrap_or_default();
    files.iter().filter_map(|file| file.dyn_into().ok()).collect()
}
