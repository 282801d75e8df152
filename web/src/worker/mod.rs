//! The dedicated worker: opens files with synchronous reads, answers questions about them, and
//! runs conversions on streams.

mod address;
pub mod ask;
pub mod blob;
mod casts;
pub mod check;
mod command_line;
pub mod compare;
mod family;
mod found;
mod job;
pub mod looking;
pub mod open;
mod opened;
mod planned;
pub mod planning;
mod preview;
pub mod private;
pub mod reading;
pub mod remote;
pub mod repair;
pub mod run;
pub mod running;
mod second;
pub mod session;
pub mod share;
pub mod sink;
pub mod sources;
pub mod statistics;
pub mod verify;
mod watch;
pub mod weights;

use std::cell::RefCell;
use std::rc::Rc;

use statelens_checkpoint::{Error, Limits};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::spawn_local;
use web_sys::{DedicatedWorkerGlobalScope, File, MessageEvent};

use crate::messages::{envelope, get, message, set};
use crate::protocol::family::{Text, Told};
use crate::protocol::{
    Done, Ended, FILES, FromWorker, HANDLE, Inspected, JobKind, Opened, Posted, ToWorker,
};
use crate::text;
use crate::worker::job::Job;
use crate::worker::opened::OpenCheckpoint;
use crate::worker::session::{Session, Shared};

/// Keys beyond which files are not planned at once.
const AT_ONCE: u64 = 20_000;
/// Milliseconds that planning the files of so many keys waits for the next edit.
const PAUSE: u32 = 1_000;

/// Starts the worker.
pub fn start() {
    // The session that is open. Nothing else holds one for longer than an answer takes.
    let current = RefCell::new(Session::begin(0));
    let hear = Closure::<dyn FnMut(MessageEvent)>::new(move |event: MessageEvent| {
        let data = event.data();
        match message(&data) {
            Ok(posted) => answer(&current, posted, &data),
            // The page hears of what is thrown, and says so.
            Err(error) => wasm_bindgen::throw_val(error),
        }
    });
    scope().set_onmessage(Some(hear.as_ref().unchecked_ref()));
    // It listens for as long as the worker lives.
    hear.forget();
    post_as(0, 0, &FromWorker::Ready, &JsValue::UNDEFINED);
    spawn_local(private::clean());
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

/// Posts a message of a job to the page, with finished files beside it.
fn post_as(session: u32, job: u32, message: &FromWorker, files: &JsValue) {
    let envelope = match envelope(&Posted { session, job, message }) {
        Ok(envelope) => envelope,
        Err(error) => wasm_bindgen::throw_val(error),
    };
    set(&envelope, HANDLE, files);
    // Messages are plain values and blobs: all of them can be cloned.
    let _ = scope().post_message(&envelope);
}

/// The files that came beside a message.
fn files_of(data: &JsValue) -> Vec<File> {
    let files = js_sys::Array::from(&get(data, FILES));
    files.iter().filter_map(|file| file.dyn_into().ok()).collect()
}

fn answer(current: &RefCell<Shared>, posted: Posted<ToWorker>, data: &JsValue) {
    let Posted { session: id, job, message } = posted;
    if message.begins_session() {
        // The one before is dropped, which stops its jobs.
        current.replace(Session::begin(id));
    }
    let session = current.borrow().clone();
    if session.borrow().id() != id {
        return post_as(id, job, &FromWorker::Ended(Ended::Refused), &JsValue::UNDEFINED);
    }
    let writes = session.borrow().jobs.is_doing(JobKind::Write);
    let job = session.borrow_mut().jobs.begin(job, message.kind());
    if writes && message.kind() == JobKind::Write {
        let error = Error::refused("another file is being written");
        return job.post(&FromWorker::Stopped { error: Some(text::error(&error)) });
    }
    if matches!(message.kind(), JobKind::Open | JobKind::Look) {
        // Says that it was heard, before anything that takes long.
        let doing = String::new();
        job.post(&FromWorker::Opening { doing, keys: 0, read: 0, calls: 0 });
    }
    job.now(|| hear(&session, &job, message, data));
    if let Some(open) = &session.borrow().open {
        open.tell_fetched(&job);
    }
}

fn hear(session: &Shared, job: &Job, message: ToWorker, data: &JsValue) {
    match message {
        ToWorker::OpenAddress { url, agreed } => {
            session.borrow_mut().jobs.allow(agreed.cap);
            let (weak, job) = (Rc::downgrade(session), job.clone());
            job.clone().spawn(async move {
                let opened = open::open_address(&url, agreed, &job).await;
                if let Some(session) = weak.upgrade() {
                    take(&session, &job, opened);
                }
            });
        }
        ToWorker::Allow { cap } => session.borrow_mut().jobs.allow(cap),
        ToWorker::Open { files, main, times } => {
            let limits = Limits::times(times);
            let opened = open::open(&files, files_of(data), main, &limits, job);
            take(session, job, opened);
        }
        ToWorker::OpenLink { fragment } => match share::open(&fragment) {
            Ok((summary, opened)) => {
                session.borrow_mut().share(summary);
                job.post(&FromWorker::Opened(Box::new(opened)));
            }
            Err(error) => job.post(&FromWorker::OpenFailed(*error)),
        },
        ToWorker::Share { options } => {
            if let Some(summary) = session.borrow_mut().summary() {
                job.post(&FromWorker::Shared(Box::new(summary.shared(options))));
            }
        }
        ToWorker::Measure { go: false } => session.borrow().jobs.stop(JobKind::Measure),
        ToWorker::Measure { go: true } => measure(session, job.clone()),
        ToWorker::Summarize { kind } => {
            if let Some(summary) = session.borrow_mut().summary() {
                let (name, text) = summary.file(kind);
                job.post(&FromWorker::Summary { name, text });
            }
        }
        ToWorker::Inspect { row } => {
            let session = session.borrow();
            let found = match &session.open {
                Some(open) => ask::inspect(open, row),
                None => Some(Inspected { row, ..Inspected::default() }),
            };
            if let Some(mut inspected) = found {
                if let Some(open) = &session.open {
                    weights::inspect(open, &session.found, &mut inspected);
                }
                if inspected.values.is_none() {
                    inspected.statistics = session.statistics(row);
                }
                job.post(&FromWorker::Inspected(inspected));
            }
        }
        ToWorker::Values { row, start, count } => {
            let session = session.borrow();
            let open = session.open.as_ref();
            if let Some(values) = open.and_then(|open| ask::values(open, row, start, count)) {
                job.post(&FromWorker::Valued(values));
            }
        }
        ToWorker::Plan { request, options } => {
            let Some(open) = session.borrow().open.clone() else { return };
            let wanted = match options.rewrite {
                None => session.borrow().wants_config(&open, &options.family),
                Some(_) => None,
            };
            if let (Some(name), Some(server)) = (wanted, open.sources.server().cloned()) {
                let plan = ToWorker::Plan { request, options };
                if !session.borrow_mut().awaits_config(job, plan) {
                    return;
                }
                let (weak, job) = (Rc::downgrade(session), job.clone());
                return job.clone().spawn(async move {
                    let bytes = remote::beside(&server, name, family::MOST_CONFIG, &job).await;
                    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
                    if let Some(session) = weak.upgrade() {
                        let config = text.map(|text| Text { name: name.to_owned(), text });
                        let waiting = session.borrow_mut().take_config(config);
                        if let Some((job, plan)) = waiting.map(|waiting| *waiting) {
                            hear(&session, &job, plan, &JsValue::NULL);
                        }
                    }
                });
            }
            let found = match options.rewrite {
                None => match session.borrow_mut().family(&open, &options.family) {
                    Ok(found) => Some(found),
                    Err(wanted) => return job.post(&FromWorker::Wants(wanted)),
                },
                Some(_) => None,
            };
            let target = options.family.target.as_ref();
            let (ready, shown) = match found.as_ref().zip(target) {
                Some((found, target)) => {
                    let (ready, shown) = family::table(&options, target, found);
                    (Some(ready), Some(shown))
                }
                None => (None, None),
            };
            let told =
                |found: &Rc<family::Found>| Box::new(Told { looks: found.looks.clone(), shown });
            job.post(&FromWorker::Family { request, family: found.as_ref().map(told) });
            let large = matches!(&ready, Some(Ok(ready)) if ready.keys() > AT_ONCE);
            let (weak, own) = (Rc::downgrade(session), job.clone());
            let values = session.borrow().found.clone();
            let plan = move || {
                let mut made = match (ready, &found) {
                    (Some(ready), Some(found)) => {
                        ready.and_then(|ready| family::plan(&open, &options, ready, found, &own))
                    }
                    _ => family::plain(&open, &options, found.as_deref(), &own),
                };
                if let Ok((made, planned)) = &mut made {
                    planned.notes.extend(casts::ranges(&open.checkpoint, made, &values.borrow()));
                }
                let (made, plan) = match made {
                    Ok((made, planned)) => (Some((request, made)), Ok(planned)),
                    Err(error) => (None, Err(text::error(&error))),
                };
                if let Some(session) = weak.upgrade() {
                    session.borrow_mut().plan = made;
                    own.post(&FromWorker::Planned { request, plan });
                }
            };
            if !large {
                return plan();
            }
            // Planning files of very many keys takes seconds in which no message is heard: whoever
            // edits a rule sees the table meanwhile, and the next edit takes the place of this one.
            session.borrow_mut().plan = None;
            let job = job.clone();
            job.clone().spawn(async move {
                gloo_timers::future::TimeoutFuture::new(PAUSE).await;
                if job.check().is_ok() {
                    plan();
                }
            });
        }
        ToWorker::Run { request, sink, falsify } => {
            let session = session.borrow();
            let plan = session.plan.clone().filter(|(made, _)| *made == request);
            let Some(((_, made), open)) = plan.zip(session.open.clone()) else {
                let error = Error::refused("another plan was made since");
                return job.post(&FromWorker::Stopped { error: Some(text::error(&error)) });
            };
            let (job, handle) = (job.clone(), get(data, HANDLE));
            job.clone().spawn(async move {
                let planning::Made { plan, more, texts } = made;
                let run = |plan| {
                    let handle = handle.clone();
                    running::run(plan, &open.sources, sink, handle, falsify, &open.limits, &job)
                };
                let mut ran = run(plan).await;
                for plan in more {
                    let Ok((done, files)) = &mut ran else { break };
                    match run(plan).await {
                        Ok((more, own)) => {
                            done.names.extend(more.names);
                            done.bytes += more.bytes;
                            done.casts.extend(more.casts);
                            done.millis += more.millis;
                            own.iter().for_each(|file| _ = files.push(&file));
                        }
                        Err(error) => {
                            // What was written before it is not handed over, and nobody else removes it.
                            private::remove_all(files).await;
                            ran = Err(error);
                        }
                    }
                }
                match ran {
                    Ok((done, files)) => {
                        job.post_with(&FromWorker::Done(Done { texts, ..done }), &files);
                    }
                    Err(error) => job.post(&FromWorker::Stopped { error: text::failure(&error) }),
                }
            });
        }
        ToWorker::Cancel => session.borrow().jobs.stop(JobKind::Write),
        ToWorker::Compare(ask) => compare::answer(session, job.clone(), ask, data),
        ToWorker::Verify(finite) => verify::answer(session, job.clone(), finite, data),
        ToWorker::Weights(ask) => weights::answer(session, job.clone(), ask),
        ToWorker::Looking(ask) => looking::answer(session, job.clone(), ask),
        ToWorker::Look { files, asked } => run::look(job.clone(), files, asked, data),
        ToWorker::Provide(files) => session.borrow_mut().provide(files),
        ToWorker::Close => {}
    }
}

/// Takes in what was opened.
fn take(
    session: &Shared,
    job: &Job,
    opened: Result<(OpenCheckpoint, Opened), Box<crate::protocol::ErrorText>>,
) {
    match opened {
        Ok((open, opened)) => {
            session.borrow_mut().open = Some(open);
            job.post(&FromWorker::Opened(Box::new(opened)));
        }
        Err(error) => job.post(&FromWorker::OpenFailed(*error)),
    }
}

/// Reads all values, beside messages.
fn measure(session: &Shared, job: Job) {
    let Some(open) = session.borrow().open.clone() else { return };
    let session = Rc::downgrade(session);
    job.clone().spawn(async move {
        let measured = share::Summary::measured(&open, &job).await;
        job.post(&FromWorker::Measured(match measured {
            Ok(summary) => {
                // Else another one is open by now.
                if let Some(session) = session.upgrade() {
                    session.borrow_mut().share(summary);
                }
                Ok(true)
            }
            Err(error) => text::failure(&error).map_or(Ok(false), Err),
        }));
        open.tell_fetched(&job);
    });
}
