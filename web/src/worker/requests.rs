//! Requests of the worker, and the errors of those that fail.

use statelens_checkpoint::Error;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::{RequestInit, Response};

use crate::worker::port::scope;

/// Makes a request. The error is the browser's reason.
pub(super) async fn fetched(
    url: &str,
    init: &RequestInit,
) -> std::result::Result<Response, String> {
    let promise = scope().fetch_with_str_and_init(url, init);
    let response = JsFuture::from(promise).await.map_err(|error| text(&error))?;
    response.dyn_into().map_err(|_| String::new())
}

/// Returns the error for a server whose response the browser hides. Distinguishing the two cases
/// would take a request that follows every redirect, which is not made.
pub(super) fn silent(host: &str, reason: &str) -> Error {
    Error::io(format!(
        "{host} could not be reached, or does not let other sites read its files (CORS): {reason}"
    ))
    .advice("If the URL opens in a browser, download the file and open it from disk, or pass the URL to the command: `statelens info URL`.")
}

/// Returns the message of a JavaScript error.
pub(super) fn text(error: &JsValue) -> String {
    crate::messages::get(error, "message").as_string().unwrap_or_default()
}
