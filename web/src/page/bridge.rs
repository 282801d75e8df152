//! The page's connection to the worker: starts it, posts messages, forwards replies. The bridge
//! numbers sessions and jobs, tracks the running jobs, and drops replies of another session or of a
//! replaced job.

use std::cell::RefCell;
use std::rc::Rc;

use gloo_timers::callback::Timeout;
use gloo_timers::future::TimeoutFuture;
use js_sys::{Array, Function, Promise};
use statelens_checkpoint::slices::{Sliced, finish};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::spawn_local;
use web_sys::{MessageEvent, Worker, WorkerOptions};
use yew::Callback;

use crate::messages::{LOCK, PREVIEW_KEYS, envelope, get, message, set};
use crate::open::message::OpenedCheckpoint;
use crate::page::embed::{connect, is_embedded};
use crate::protocol::error::{ErrorKind, ErrorText};
use crate::protocol::job::JobKind;
use crate::protocol::{FILES, FromWorker, HANDLE, JobMessage, PORT, ToWorker};
use crate::rows::PackedRows;
use crate::state::work::OpenWork;

/// Milliseconds before a worker that does not react to a new session is terminated. It may be
/// waiting for a server and can't receive messages meanwhile.
const TIMEOUT: u32 = 1_500;

/// Above this number of keys, a preview of the first keys is shown, and all of them are arranged in
/// slices.
const PREVIEW_ABOVE: u32 = 5_000;
/// Milliseconds that a browser needs to draw the preview.
const FRAMES: u32 = 30;
/// Number of pauses in a slice of arranging: about 10 milliseconds.
const PAUSES: usize = 16;

/// The message of the error that `web/boot.js` throws if the browser can't load the second part of
/// the program.
const NOT_LOADED: &str = "A part of Statelens could not be loaded.";

/// A reply of the worker.
pub enum WorkerReply {
    /// A message with its session and job, and the attached files or handle.
    Message(Box<JobMessage<FromWorker>>, JsValue),
    /// The checkpoint that was opened in a session, arranged; `None` if its rows are not readable.
    Opened(u32, Option<Box<OpenWork>>),
}

/// A running worker. Clones share the same worker.
#[derive(Clone)]
pub struct Bridge {
    inner: Rc<RefCell<BridgeState>>,
    on_reply: Callback<WorkerReply>,
}

struct BridgeState {
    worker: Option<Worker>,
    ready: bool,
    queue: Vec<JsValue>,
    /// The latest session.
    session: u32,
    /// The message that began that session, until the first reply arrives.
    session_request: Option<JsValue>,
    /// The latest job.
    job: u32,
    /// Running jobs.
    jobs: Vec<(u32, JobKind)>,
    /// The session whose checkpoint is being arranged.
    arranging: Option<u32>,
    /// The unique name of this tab, and of the lock that it holds.
    tab: String,
    on_message: Option<Closure<dyn FnMut(MessageEvent)>>,
    on_error: Option<Closure<dyn FnMut(web_sys::ErrorEvent)>>,
}

impl PartialEq for Bridge {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Bridge {
    /// Starts a worker whose replies go to `on_reply`.
    pub fn start(on_reply: Callback<WorkerReply>) -> Self {
        let tab = format!("{LOCK}{}", (js_sys::Math::random() * 1e15) as u64);
        hold_tab_lock(&tab);
        let inner = BridgeState {
            worker: None,
            ready: false,
            queue: Vec::new(),
            session: 0,
            session_request: None,
            job: 0,
            jobs: Vec::new(),
            arranging: None,
            tab,
            on_message: None,
            on_error: None,
        };
        let bridge = Self { inner: Rc::new(RefCell::new(inner)), on_reply };
        bridge.spawn();
        bridge
    }

    pub fn is_running(&self, kind: JobKind) -> bool {
        let inner = self.inner.borrow();
        let is_arranging = kind == JobKind::Open && inner.arranging == Some(inner.session);
        is_arranging || inner.jobs.iter().any(|job| job.1 == kind)
    }

    /// Returns the running jobs, which end if something else is opened.
    pub fn running(&self) -> Vec<JobKind> {
        self.inner.borrow().jobs.iter().map(|job| job.1).collect()
    }

    /// Terminates the worker at once and starts a new one, with nothing open.
    pub fn restart(&self) {
        self.inner.borrow_mut().session += 1;
        self.replace();
    }

    /// Posts a message about the latest session.
    pub fn post(&self, message: &ToWorker) {
        self.post_with(message, &JsValue::UNDEFINED, &JsValue::UNDEFINED);
    }

    /// Posts a message about a session; does nothing if a newer session was begun.
    pub fn request(&self, session: u32, message: &ToWorker) {
        self.request_with(session, message, &JsValue::UNDEFINED, &JsValue::UNDEFINED);
    }

    /// Like [`Bridge::request`], with files or a handle attached. Returns whether the message was
    /// posted.
    pub fn request_with(
        &self,
        session: u32,
        message: &ToWorker,
        files: &JsValue,
        handle: &JsValue,
    ) -> bool {
        let is_open = self.inner.borrow().session == session;
        if is_open {
            self.post_with(message, files, handle);
        }
        is_open
    }

    /// Like [`Bridge::post`], with files or a handle attached.
    pub fn post_with(&self, message: &ToWorker, files: &JsValue, handle: &JsValue) {
        let begins = message.begins_session();
        // A worker that is opening something does not receive messages, so it is replaced.
        if begins && (self.is_running(JobKind::Open) || self.is_running(JobKind::CheckRun)) {
            self.replace();
        }
        let mut inner = self.inner.borrow_mut();
        if begins {
            inner.session += 1;
            inner.jobs.clear();
        }
        inner.job += 1;
        let (session, job, kind) = (inner.session, inner.job, message.kind());
        let envelope = match envelope(&JobMessage { session, job, message }) {
            Ok(envelope) => envelope,
            Err(error) => {
                drop(inner);
                return self.report_crash(session, &error);
            }
        };
        set(&envelope, FILES, files);
        set(&envelope, HANDLE, handle);
        if matches!(message, ToWorker::Open { .. }) && is_embedded() {
            set(&envelope, PORT, &JsValue::TRUE);
        }
        if kind.is_single() {
            inner.jobs.retain(|job| job.1 != kind);
        }
        inner.jobs.push((job, kind));
        let envelope = JsValue::from(envelope);
        if begins {
            inner.session_request = Some(envelope.clone());
            let bridge = self.clone();
            Timeout::new(TIMEOUT, move || bridge.restart_if_silent(session)).forget();
        }
        inner.post(envelope);
    }

    /// Forwards a reply.
    fn forward(&self, posted: JobMessage<FromWorker>, attached: JsValue) {
        let JobMessage { session, job, message } = posted;
        match message {
            FromWorker::Opened(opened) => self.arrange(session, job, *opened),
            message => self.forward_message(session, job, message, attached),
        }
    }

    fn forward_message(&self, session: u32, job: u32, message: FromWorker, attached: JsValue) {
        let posted = Box::new(JobMessage { session, job, message });
        self.on_reply.emit(WorkerReply::Message(posted, attached));
    }

    /// Arranges the rows of an opened checkpoint, and forwards it. If it has very many, forwards a
    /// preview of the first ones before, and arranges them in slices, so that the page can handle
    /// input between them.
    fn arrange(&self, session: u32, job: u32, opened: OpenedCheckpoint) {
        let keys = opened.rows.count();
        if keys <= PREVIEW_ABOVE {
            let work = finish(OpenWork::unpack(opened));
            return self.on_reply.emit(WorkerReply::Opened(session, work.map(Box::new)));
        }
        if let Some(rows) = finish(opened.rows.first(PREVIEW_KEYS)) {
            let first = FromWorker::Found(PackedRows::pack(&rows));
            self.forward_message(session, job, first, JsValue::UNDEFINED);
        }
        let (doing, read, calls) = ("Arranging the keys".to_owned(), opened.read, opened.calls);
        let opening = FromWorker::Opening { doing, keys: keys.into(), read, calls };
        self.forward_message(session, job, opening, JsValue::UNDEFINED);
        self.inner.borrow_mut().arranging = Some(session);
        let bridge = self.clone();
        spawn_local(async move {
            TimeoutFuture::new(FRAMES).await;
            let mut work = Sliced::new(OpenWork::unpack(opened));
            // Ends if something else is opened meanwhile.
            while bridge.inner.borrow().session == session {
                if let Some(work) = work.run(PAUSES) {
                    bridge.inner.borrow_mut().arranging = None;
                    let work = work.map(Box::new);
                    return bridge.on_reply.emit(WorkerReply::Opened(session, work));
                }
                TimeoutFuture::new(0).await;
            }
        });
    }

    /// Terminates a worker that has not replied in a session, and begins that session in a new
    /// worker.
    fn restart_if_silent(&self, session: u32) {
        let session_request = {
            let mut inner = self.inner.borrow_mut();
            // A worker that has not started yet can't be busy.
            if inner.session != session || !inner.ready {
                return;
            }
            inner.session_request.take()
        };
        if let Some(session_request) = session_request {
            let jobs = self.inner.borrow().jobs.clone();
            self.replace();
            let mut inner = self.inner.borrow_mut();
            inner.jobs = jobs;
            inner.post(session_request);
        }
    }

    /// Replaces the worker with a new one.
    fn replace(&self) {
        if let Some(worker) = self.inner.borrow_mut().worker.take() {
            worker.terminate();
        }
        self.spawn();
    }

    fn spawn(&self) {
        let bridge = self.clone();
        let on_message = Closure::<dyn FnMut(MessageEvent)>::new(move |event: MessageEvent| {
            let data = event.data();
            let posted = match message::<JobMessage<FromWorker>>(&data) {
                Ok(posted) => posted,
                Err(error) => {
                    let session = bridge.inner.borrow().session;
                    return bridge.report_crash(session, &error);
                }
            };
            let is_of_interest = bridge.inner.borrow_mut().accepts(&posted);
            if is_of_interest {
                bridge.forward(posted, get(&data, HANDLE));
            }
        });
        let bridge = self.clone();
        let on_error =
            Closure::<dyn FnMut(web_sys::ErrorEvent)>::new(move |event: web_sys::ErrorEvent| {
                event.prevent_default();
                let (ready, session) = {
                    let inner = bridge.inner.borrow();
                    (inner.ready, inner.session)
                };
                let (bridge, error) = (bridge.clone(), JsValue::from(event.message()));
                // Deferred: the restart drops the closure that is running now.
                Timeout::new(0, move || {
                    // A worker that never became ready would only fail again.
                    if ready {
                        bridge.restart();
                    }
                    bridge.report_crash(session, &error);
                })
                .forget();
            });
        let mut inner = self.inner.borrow_mut();
        inner.ready = false;
        inner.queue.clear();
        inner.jobs.clear();
        let program = get(&js_sys::global(), "program");
        let script = get(&program, "worker").as_string().unwrap_or_default();
        let options: WorkerOptions = get(&program, "options").unchecked_into();
        options.set_name(&inner.tab);
        inner.worker = Worker::new_with_options(&script, &options).ok();
        if let Some(worker) = &inner.worker {
            // The worker runs the same program as the page, already compiled.
            let _ = worker.post_message(&program);
            worker.set_onmessage(Some(on_message.as_ref().unchecked_ref()));
            worker.set_onerror(Some(on_error.as_ref().unchecked_ref()));
        }
        inner.on_message = Some(on_message);
        inner.on_error = Some(on_error);
    }
}

impl Bridge {
    /// Reports to the page that the worker crashed, with the error.
    fn report_crash(&self, session: u32, error: &JsValue) {
        let text = error.as_string().unwrap_or_else(|| format!("{error:?}"));
        let message = FromWorker::Crashed(crash_error(&text));
        self.forward_message(session, 0, message, JsValue::UNDEFINED);
    }
}

impl BridgeState {
    /// Posts a message, or queues it until the worker is ready.
    fn post(&mut self, envelope: JsValue) {
        match &self.worker {
            // Posting fails only if the browser has revoked a handle; then nothing is lost.
            Some(worker) if self.ready => {
                let _ = match connect(&envelope) {
                    Some(port) => worker.post_message_with_transfer(&envelope, &Array::of1(&port)),
                    None => worker.post_message(&envelope),
                };
            }
            _ => self.queue.push(envelope),
        }
    }

    /// Updates the running jobs from a reply. Returns whether to forward the reply to the page.
    fn accepts(&mut self, posted: &JobMessage<FromWorker>) -> bool {
        if posted.message == FromWorker::Ready {
            self.ready = true;
            for envelope in std::mem::take(&mut self.queue) {
                self.post(envelope);
            }
            return false;
        }
        if posted.session != self.session {
            return false;
        }
        self.session_request = None;
        let is_under_way = self.jobs.iter().any(|job| job.0 == posted.job);
        match posted.message {
            // A task that ended without a result is not running any more. The end of a job that a
            // newer one of its kind replaced says nothing about that one.
            FromWorker::Ended(kind, _) => {
                self.jobs.retain(|job| job.0 != posted.job);
                is_under_way && kind.is_task() && !self.jobs.iter().any(|job| job.1 == kind)
            }
            FromWorker::Fetched(_) => true,
            _ => is_under_way,
        }
    }
}

/// Holds a lock while the tab exists, so that other tabs see that its private files are in use.
fn hold_tab_lock(tab: &str) {
    let navigator = web_sys::window().map(|window| JsValue::from(window.navigator()));
    let locks = get(&navigator.unwrap_or_default(), "locks");
    let Ok(request) = get(&locks, "request").dyn_into::<Function>() else { return };
    let until_gone = Closure::once_into_js(|| Promise::new(&mut |_, _| {}));
    // If the browser refuses the lock, tabs go by the age of the files.
    let _ = request.call2(&locks, &tab.into(), &until_gone);
}

fn crash_error(message: &str) -> ErrorText {
    if message.contains(NOT_LOADED) {
        return ErrorText {
            kind: ErrorKind::Io,
            title: NOT_LOADED.into(),
            text: "Check the connection, then open the file again. It was not changed.".into(),
            file: String::new(),
            offset: None,
            lines: Vec::new(),
            next: Vec::new(),
        };
    }
    ErrorText {
        kind: ErrorKind::Unsupported,
        title: "The reader stopped.".into(),
        text: "Statelens has a defect, or the browser ran out of memory. The file was not changed."
            .into(),
        file: message.to_owned(),
        offset: None,
        lines: Vec::new(),
        next: vec![(
            "Inspect it on the command line, which shows more details".into(),
            "statelens info FILE".into(),
        )],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::job::JobEnd;

    #[test]
    fn a_part_that_was_not_loaded_is_no_defect() {
        let error = crash_error(&format!("Uncaught Error: {NOT_LOADED}"));
        assert_eq!((error.kind, error.title.as_str()), (ErrorKind::Io, NOT_LOADED));
        assert!(error.text.starts_with("Check the connection"), "{}", error.text);
        assert_eq!(crash_error("unreachable").title, "The reader stopped.");
    }

    fn inner() -> BridgeState {
        BridgeState {
            worker: None,
            ready: true,
            queue: Vec::new(),
            session: 3,
            session_request: None,
            job: 9,
            jobs: vec![(8, JobKind::Verify), (9, JobKind::Inspect)],
            arranging: None,
            tab: String::new(),
            on_message: None,
            on_error: None,
        }
    }

    #[test]
    fn drops_replies_of_ended_jobs_and_old_sessions() {
        let mut inner = inner();
        let mut accepts = |session, job, message| {
            let accepted = inner.accepts(&JobMessage { session, job, message });
            (accepted, inner.jobs.len())
        };
        let measured = || FromWorker::Rate(1.0);
        assert_eq!(accepts(3, 8, measured()), (true, 2));
        assert_eq!(accepts(2, 8, measured()), (false, 2), "another session");
        assert_eq!(accepts(3, 7, measured()), (false, 2), "a job that was replaced");
        let ended = |end| FromWorker::Ended(JobKind::Verify, end);
        assert_eq!(accepts(2, 8, ended(JobEnd::Replaced)), (false, 2));
        assert_eq!(accepts(3, 8, ended(JobEnd::Completed)), (true, 1), "the page stops its task");
        assert_eq!(accepts(3, 8, ended(JobEnd::Completed)), (false, 1));
        assert_eq!(accepts(3, 8, measured()), (false, 1), "a job that is over");
        let other = FromWorker::Ended(JobKind::Inspect, JobEnd::Completed);
        assert_eq!(accepts(3, 9, other), (false, 0), "only tasks have a state in the page");
    }
}
