//! The dedicated worker: opens files with synchronous reads, answers questions about them, and
//! runs conversions on streams.

pub mod ask;
pub mod blob;
mod casts;
pub mod check;
pub mod compare;
pub mod open;
pub mod planning;
pub mod reading;
pub mod remote;
pub mod repair;
pub mod run;
pub mod running;
pub mod share;
pub mod sink;
pub mod statistics;
pub mod text;
pub mod verify;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use statelens_checkpoint::{Checkpoint, Leaf, Plan};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::spawn_local;
use web_sys::{DedicatedWorkerGlobalScope, File, MessageEvent};

use crate::page::bridge::{envelope, get, message, set};
use crate::protocol::{FILES, Fact, FromWorker, HANDLE, Inspected, ToWorker};
use crate::worker::running::{Cancel, Guard};

/// What the worker holds between messages.
#[derive(Default)]
struct Desk {
    open: Option<Open>,
    plan: Option<Plan>,
    /// What is shared: made when it is first asked for, or opened from a link.
    summary: Option<share::Summary>,
    cancel: Option<Cancel>,
    second: compare::Second,
    /// Looking through the files of a run folder, or reading all values.
    working: Option<Guard>,
    verifying: Option<Guard>,
}

/// The open checkpoint, and its leaves by row.
#[derive(Clone)]
pub struct Open {
    /// The checkpoint.
    pub checkpoint: Arc<Checkpoint>,
    /// Its leaves, in the order of the rows that the page was sent.
    pub leaves: Arc<[Leaf]>,
}

impl Desk {
    /// What can be shared of what is open.
    fn summary(&mut self) -> Option<share::Summary> {
        if self.summary.is_none() {
            self.summary = self.open.as_ref().map(share::Summary::of);
        }
        self.summary.clone()
    }

    /// Statistics of a row: known ones, or those of a tensor that is read in no time.
    fn statistics(&self, row: u32) -> Vec<Fact> {
        let known = self.summary.as_ref().and_then(|summary| summary.statistics(row));
        let quick = || self.open.as_ref().and_then(|open| statistics::of_small(open, row));
        known.or_else(quick).map(|found| statistics::facts(&found)).unwrap_or_default()
    }
}

/// Starts the worker.
pub fn start() {
    let desk = Rc::new(RefCell::new(Desk::default()));
    let hear = Closure::<dyn FnMut(MessageEvent)>::new(move |event: MessageEvent| {
        let data = event.data();
        if let Some(message) = message(&data) {
            answer(&desk, message, &data);
        }
    });
    scope().set_onmessage(Some(hear.as_ref().unchecked_ref()));
    // It listens for as long as the worker lives.
    hear.forget();
    post(&FromWorker::Ready);
    spawn_local(sink::clean());
}

/// The worker's global object.
#[must_use]
pub fn scope() -> DedicatedWorkerGlobalScope {
    js_sys::global().unchecked_into()
}

/// Milliseconds since the worker began.
#[must_use]
pub fn now() -> f64 {
    scope().performance().map_or(0.0, |clock| clock.now())
}

/// Posts a message to the page.
pub fn post(message: &FromWorker) {
    post_with(message, &JsValue::UNDEFINED);
}

/// Posts a message with a finished file beside it.
pub fn post_with(message: &FromWorker, handle: &JsValue) {
    let envelope = envelope(message);
    set(&envelope, HANDLE, handle);
    // Messages are plain values and blobs: all of them can be cloned.
    let _ = scope().post_message(&envelope);
}

fn answer(desk: &Rc<RefCell<Desk>>, message: ToWorker, data: &JsValue) {
    remote::begin_action();
    match message {
        ToWorker::OpenAddress { url, agreed } => {
            *desk.borrow_mut() = Desk::default();
            blob::forget();
            let desk = desk.clone();
            spawn_local(async move {
                match open::open_address(&url, agreed).await {
                    Ok((open, opened)) => {
                        desk.borrow_mut().open = Some(open);
                        post(&FromWorker::Opened(Box::new(opened)));
                    }
                    Err(error) => post(&FromWorker::OpenFailed(*error)),
                }
                remote::tell();
            });
        }
        ToWorker::Allow { cap } => {
            remote::allow(cap);
        }
        ToWorker::Open { files, main } => {
            let handles: Vec<File> = js_sys::Array::from(&get(data, FILES))
                .iter()
                .filter_map(|file| file.dyn_into().ok())
                .collect();
            *desk.borrow_mut() = Desk::default();
            remote::forget();
            match open::open(&files, handles, main) {
                Ok((open, opened)) => {
                    desk.borrow_mut().open = Some(open);
                    post(&FromWorker::Opened(Box::new(opened)));
                }
                Err(error) => post(&FromWorker::OpenFailed(*error)),
            }
        }
        ToWorker::OpenLink { fragment } => {
            *desk.borrow_mut() = Desk::default();
            blob::forget();
            remote::forget();
            match share::open(&fragment) {
                Ok((summary, opened)) => {
                    desk.borrow_mut().summary = Some(summary);
                    post(&FromWorker::Opened(Box::new(opened)));
                }
                Err(error) => post(&FromWorker::OpenFailed(*error)),
            }
        }
        ToWorker::Share { options } => {
            if let Some(summary) = desk.borrow_mut().summary() {
                post(&FromWorker::Shared(Box::new(summary.shared(options))));
            }
        }
        ToWorker::Measure { go: false } => desk.borrow_mut().working = None,
        ToWorker::Measure { go: true } => {
            let summary = desk.borrow_mut().summary();
            let Some((open, summary)) = desk.borrow().open.clone().zip(summary) else { return };
            let cancel = Cancel::default();
            desk.borrow_mut().working = Some(Guard(cancel.clone()));
            let desk = desk.clone();
            spawn_local(async move {
                let measured = summary.measured(&open, &cancel).await;
                post(&FromWorker::Measured(match measured {
                    Ok(summary) => {
                        // Else another one is open by now.
                        if cancel.check().is_ok() {
                            desk.borrow_mut().summary = Some(summary);
                        }
                        Ok(true)
                    }
                    Err(error) => text::failure(&error).map_or(Ok(false), Err),
                }));
                remote::tell();
            });
        }
        ToWorker::Summarize { kind } => {
            if let Some(summary) = desk.borrow_mut().summary() {
                let (name, text) = summary.file(kind);
                post(&FromWorker::Summary { name, text });
            }
        }
        ToWorker::Inspect { row } => {
            let desk = desk.borrow();
            let found = match &desk.open {
                Some(open) => ask::inspect(open, row),
                None => Some(Inspected { row, ..Inspected::default() }),
            };
            if let Some(mut inspected) = found {
                inspected.statistics = desk.statistics(row);
                post(&FromWorker::Inspected(inspected));
            }
        }
        ToWorker::Values { row, start, count } => {
            if let Some(values) =
                desk.borrow().open.as_ref().and_then(|open| ask::values(open, row, start, count))
            {
                post(&FromWorker::Valued(values));
            }
        }
        ToWorker::Plan { request, options } => {
            let Some(open) = desk.borrow().open.clone() else { return };
            let made = planning::plan(&open, &options);
            let plan = match made {
                Ok((plan, planned)) => {
                    desk.borrow_mut().plan = Some(plan);
                    Ok(planned)
                }
                Err(error) => {
                    desk.borrow_mut().plan = None;
                    Err(text::error(&error))
                }
            };
            post(&FromWorker::Planned { request, plan });
        }
        ToWorker::Run { sink, falsify } => {
            let Some(plan) = desk.borrow().plan.clone() else { return };
            let cancel = Cancel::default();
            desk.borrow_mut().cancel = Some(cancel.clone());
            let handle = get(data, HANDLE);
            spawn_local(async move {
                match running::run(plan, sink, handle, falsify, &cancel).await {
                    Ok((done, files)) => post_with(&FromWorker::Done(done), &files),
                    Err(error) => post(&FromWorker::Stopped { error: text::failure(&error) }),
                }
            });
        }
        ToWorker::Cancel => {
            if let Some(cancel) = &desk.borrow().cancel {
                cancel.set();
            }
        }
        ToWorker::Compare(ask) => compare::answer(desk, ask, data),
        ToWorker::Verify(finite) => verify::answer(desk, finite, data),
        ToWorker::Look { files, asked } => run::look(desk, files, asked, data),
        ToWorker::Close => {
            *desk.borrow_mut() = Desk::default();
            blob::forget();
            remote::forget();
            spawn_local(sink::clean());
        }
    }
    remote::tell();
}
