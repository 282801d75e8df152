//! What was asked for and is under way, until it ends, is stopped, or something else is opened.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use js_sys::Array;
use statelens_checkpoint::{Error, Result};
use statelens_remote::{Allowance, Meter};
use wasm_bindgen::JsValue;
use wasm_bindgen_futures::spawn_local;
use web_sys::AbortController;

use crate::protocol::FromWorker;
use crate::protocol::job::{Ended, JobKind};
use crate::worker::post_as;

/// How more can be fetched.
const ADVICE: &str = "Allow more at the bottom of the page, or download the file.";

/// The jobs of a session, and what they fetch together. Dropped, it stops them.
pub(super) struct Jobs {
    session: u32,
    meter: Arc<Meter>,
    /// What a job may fetch that nothing else was agreed to for.
    cap: u64,
    all: Vec<Weak<JobState>>,
}

impl Jobs {
    /// None yet, of a session.
    pub(super) fn of(session: u32) -> Self {
        let meter = Arc::new(Meter::new(u64::MAX, ADVICE));
        Self { session, meter, cap: u64::MAX, all: Vec::new() }
    }

    /// A job begins; one of its kind that is under way is stopped, if there is only one at a time.
    pub(super) fn begin(&mut self, id: u32, kind: JobKind) -> Job {
        if kind.is_single() {
            self.stop(kind);
        }
        let job = Job(Rc::new(JobState {
            session: self.session,
            id,
            kind,
            stopped: Cell::new(None),
            requests: RefCell::new(None),
            meter: self.meter.clone(),
            allowance: Allowance::new(self.cap),
            agreed: Cell::new(false),
        }));
        self.all.retain(|job| job.strong_count() > 0);
        self.all.push(Rc::downgrade(&job.0));
        job
    }

    /// Stops the jobs of a kind.
    pub(super) fn stop(&self, kind: JobKind) {
        for job in self.all.iter().filter_map(Weak::upgrade).filter(|job| job.kind == kind) {
            job.stop(Ended::Stopped);
        }
    }

    /// Whether a job of a kind is under way.
    pub(super) fn is_doing(&self, kind: JobKind) -> bool {
        self.all.iter().filter_map(Weak::upgrade).any(|job| job.kind == kind)
    }

    /// Lets each job fetch so many bytes; those that may fetch all they need still may.
    pub(super) fn allow(&mut self, cap: u64) {
        self.cap = cap;
        for job in self.all.iter().filter_map(Weak::upgrade).filter(|job| !job.agreed.get()) {
            job.allowance.allow(cap);
        }
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        for job in self.all.iter().filter_map(Weak::upgrade) {
            job.stop(Ended::Replaced);
        }
    }
}

/// Something that was asked for. It is over when nobody holds it any more, which the page is told.
#[derive(Clone)]
pub struct Job(Rc<JobState>);

struct JobState {
    session: u32,
    id: u32,
    kind: JobKind,
    /// Why it is to stop.
    stopped: Cell<Option<Ended>>,
    /// Requests that are given up when it stops.
    requests: RefCell<Option<AbortController>>,
    meter: Arc<Meter>,
    allowance: Arc<Allowance>,
    /// True if all that it fetches was agreed to.
    agreed: Cell<bool>,
}

impl JobState {
    fn stop(&self, why: Ended) {
        if self.stopped.get().is_none() {
            self.stopped.set(Some(why));
        }
        if let Some(requests) = self.requests.take() {
            requests.abort();
        }
    }
}

impl Drop for JobState {
    fn drop(&mut self) {
        let why = self.stopped.get().unwrap_or(Ended::ByItself);
        post_as(self.session, self.id, &FromWorker::Ended(why), &JsValue::UNDEFINED);
    }
}

impl Job {
    /// Tells the page something of it.
    pub fn post(&self, message: &FromWorker) {
        post_as(self.0.session, self.0.id, message, &JsValue::UNDEFINED);
    }

    /// As [`Job::post`], with finished files beside the message.
    pub fn post_with(&self, message: &FromWorker, files: &Array) {
        post_as(self.0.session, self.0.id, message, files);
    }

    /// An error once it is to stop.
    ///
    /// # Errors
    /// That it is cancelled.
    pub fn check(&self) -> Result<()> {
        if self.0.stopped.get().is_some() { Err(Error::cancelled()) } else { Ok(()) }
    }

    /// When it stops, these requests are given up, too, in the place of those before.
    pub(super) fn aborts(&self, requests: Option<AbortController>) {
        if let Some(before) = self.0.requests.replace(requests) {
            before.abort();
        }
    }

    /// The user agreed to all that it fetches.
    pub(super) fn agrees_to_all(&self) {
        self.0.agreed.set(true);
        self.0.allowance.allow(u64::MAX);
    }

    /// What counts what the session fetches.
    pub(super) fn meter(&self) -> &Arc<Meter> {
        &self.0.meter
    }

    /// What it may fetch.
    pub(super) fn allowance(&self) -> &Arc<Allowance> {
        &self.0.allowance
    }

    /// Does some of it at once: what that fetches is charged to it.
    pub(super) fn now<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = self.0.meter.charge(self.0.allowance.clone());
        let done = work();
        self.0.meter.charge(before);
        done
    }

    /// Does it beside messages. Jobs take turns: what is fetched in one of this one's is charged
    /// to it.
    pub(super) fn spawn(self, work: impl Future<Output = ()> + 'static) {
        let mut work = Box::pin(work);
        spawn_local(std::future::poll_fn(move |context| self.now(|| work.as_mut().poll(context))));
    }
}
