//! The page's end of the worker: starts it, posts messages, hands on answers.

use std::cell::RefCell;
use std::rc::Rc;

use js_sys::Uint8Array;
use serde::{Serialize, de::DeserializeOwned};
use wasm_bindgen::prelude::*;
use web_sys::{MessageEvent, Worker, WorkerOptions};
use yew::Callback;

use crate::protocol::{FILES, FromWorker, HANDLE, MESSAGE, ToWorker};
use crate::wire;

/// What came from the worker: the message, and what came beside it.
pub type Answer = (FromWorker, JsValue);

/// A running worker. Clones share it.
#[derive(Clone)]
pub struct Bridge {
    inner: Rc<RefCell<Inner>>,
    answers: Callback<Answer>,
}

struct Inner {
    worker: Option<Worker>,
    ready: bool,
    busy: bool,
    waiting: Vec<JsValue>,
    hear: Option<Closure<dyn FnMut(MessageEvent)>>,
    fail: Option<Closure<dyn FnMut(web_sys::ErrorEvent)>>,
}

impl PartialEq for Bridge {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Bridge {
    /// Starts a worker whose answers go to `answers`.
    pub fn start(answers: Callback<Answer>) -> Self {
        let inner = Inner {
            worker: None,
            ready: false,
            busy: false,
            waiting: Vec::new(),
            hear: None,
            fail: None,
        };
        let bridge = Self { inner: Rc::new(RefCell::new(inner)), answers };
        bridge.spawn();
        bridge
    }

    /// Starts a new worker if this one is in the middle of something: it could not listen.
    pub fn restart_if_busy(&self) {
        if self.inner.borrow().busy {
            self.restart();
        }
    }

    /// Ends whatever the worker is doing, at once, and starts a new one.
    pub fn restart(&self) {
        if let Some(worker) = self.inner.borrow_mut().worker.take() {
            worker.terminate();
        }
        self.spawn();
    }

    /// Posts a message.
    pub fn post(&self, message: &ToWorker) {
        self.post_with(message, &JsValue::UNDEFINED, &JsValue::UNDEFINED);
    }

    /// Posts a message with files or a handle beside it.
    pub fn post_with(&self, message: &ToWorker, files: &JsValue, handle: &JsValue) {
        let begins = matches!(
            message,
            ToWorker::Open { .. }
                | ToWorker::OpenAddress { .. }
                | ToWorker::Measure { go: true }
                | ToWorker::Run { .. }
        );
        let envelope = envelope(message);
        set(&envelope, FILES, files);
        set(&envelope, HANDLE, handle);
        let mut inner = self.inner.borrow_mut();
        inner.busy |= begins;
        if inner.ready {
            if let Some(worker) = &inner.worker {
                // What can't be cloned is a handle that the browser took back: nothing is lost.
                let _ = worker.post_message(&envelope);
            }
        } else {
            inner.waiting.push(envelope.into());
        }
    }

    fn spawn(&self) {
        let shared = self.inner.clone();
        let answers = self.answers.clone();
        let hear = Closure::<dyn FnMut(MessageEvent)>::new(move |event: MessageEvent| {
            let data = event.data();
            let Some(message) = message::<FromWorker>(&data) else { return };
            if matches!(message, FromWorker::Ready) {
                let mut inner = shared.borrow_mut();
                inner.ready = true;
                let waiting = std::mem::take(&mut inner.waiting);
                if let Some(worker) = &inner.worker {
                    for envelope in waiting {
                        let _ = worker.post_message(&envelope);
                    }
                }
                return;
            }
            if matches!(
                message,
                FromWorker::Opened(_)
                    | FromWorker::OpenFailed(_)
                    | FromWorker::Measured(_)
                    | FromWorker::Done(_)
                    | FromWorker::Stopped { .. }
            ) {
                shared.borrow_mut().busy = false;
            }
            answers.emit((message, get(&data, HANDLE)));
        });
        let bridge = self.clone();
        let fail =
            Closure::<dyn FnMut(web_sys::ErrorEvent)>::new(move |event: web_sys::ErrorEvent| {
                event.prevent_default();
                // A worker that never spoke would only fail again.
                if bridge.inner.borrow().ready {
                    let bridge = bridge.clone();
                    gloo_timers::callback::Timeout::new(0, move || bridge.restart()).forget();
                }
                bridge
                    .answers
                    .emit((FromWorker::OpenFailed(died(&event.message())), JsValue::UNDEFINED));
            });
        let mut inner = self.inner.borrow_mut();
        inner.ready = false;
        inner.busy = false;
        inner.waiting.clear();
        let program = get(&js_sys::global(), "program");
        let script = get(&program, "worker").as_string().unwrap_or_default();
        let options: WorkerOptions = get(&program, "options").unchecked_into();
        inner.worker = Worker::new_with_options(&script, &options).ok();
        if let Some(worker) = &inner.worker {
            // What it runs is what this page runs, compiled already.
            let _ = worker.post_message(&program);
            worker.set_onmessage(Some(hear.as_ref().unchecked_ref()));
            worker.set_onerror(Some(fail.as_ref().unchecked_ref()));
        }
        inner.hear = Some(hear);
        inner.fail = Some(fail);
    }
}

/// An object to post, with a message in it.
pub fn envelope(message: &impl Serialize) -> js_sys::Object {
    let envelope = js_sys::Object::new();
    let bytes = Uint8Array::from(wire::to_bytes(message).as_slice());
    set(&envelope, MESSAGE, &bytes);
    envelope
}

/// The message in an object that [`envelope`] made; `None` in any other.
pub fn message<T: DeserializeOwned>(posted: &JsValue) -> Option<T> {
    let bytes: Uint8Array = get(posted, MESSAGE).dyn_into().ok()?;
    Some(wire::from_bytes(&bytes.to_vec()))
}

/// A property of a JS object; undefined if there is none.
pub fn get(object: &JsValue, name: &str) -> JsValue {
    js_sys::Reflect::get(object, &name.into()).unwrap_or(JsValue::UNDEFINED)
}

/// Sets a property of a plain JS object, which can't fail.
pub fn set(object: &JsValue, name: &str, value: &JsValue) {
    let _ = js_sys::Reflect::set(object, &name.into(), value);
}

fn died(message: &str) -> crate::protocol::ErrorText {
    crate::protocol::ErrorText {
        kind: crate::protocol::ErrorKind::Unsupported,
        title: "The reader stopped.".into(),
        text: "A defect in Statelens, or less memory than the file needs. The file itself was not changed."
            .into(),
        place: message.to_owned(),
        lines: Vec::new(),
        next: vec![("Look at it on the command line, which says more".into(), "statelens info FILE".into())],
    }
}
