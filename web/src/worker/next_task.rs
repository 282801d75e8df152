//! Lets the worker receive messages in the middle of long work.

use js_sys::{Array, Function, Promise, Reflect};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

use crate::messages::{get, set};

/// A channel from the worker to itself. Browsers delay timers of 0 ms by 4 ms once they repeat, a
/// tenth of the time between two pauses; a message comes as soon as those before it are handled.
pub(crate) struct NextTask {
    /// The two ports, and the function that sends a message.
    ports: Option<(JsValue, JsValue, Function)>,
}

impl NextTask {
    pub(crate) fn new() -> Self {
        let channel = || {
            let constructor = get(&js_sys::global(), "MessageChannel");
            let constructor: Function = constructor.dyn_into().ok()?;
            let channel: JsValue = Reflect::construct(&constructor, &Array::new()).ok()?;
            let (receiver, sender) = (get(&channel, "port1"), get(&channel, "port2"));
            let post = get(&sender, "postMessage").dyn_into().ok()?;
            Some((receiver, sender, post))
        };
        Self { ports: channel() }
    }

    /// Waits until the messages that have arrived are handled.
    pub(crate) async fn wait(&self) {
        let Some((receiver, sender, post)) = &self.ports else {
            return gloo_timers::future::TimeoutFuture::new(0).await;
        };
        let message = Promise::new(&mut |resolve, _| {
            set(receiver, "onmessage", &resolve);
            let _ = post.call1(sender, &JsValue::NULL);
        });
        let _ = JsFuture::from(message).await;
    }
}

impl Drop for NextTask {
    fn drop(&mut self) {
        let Some((receiver, ..)) = &self.ports else { return };
        if let Ok(close) = get(receiver, "close").dyn_into::<Function>() {
            let _ = close.call0(receiver);
        }
    }
}
