//! Jobs: requests in progress, until they end, are stopped, or something else is opened.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use statelens_checkpoint::{Error, Result};
use statelens_remote::{Allowance, Meter};
use wasm_bindgen::JsValue;
use wasm_bindgen_futures::spawn_local;
use web_sys::AbortController;

use crate::protocol::FromWorker;
use crate::protocol::job::{JobEnd, JobKind};
use crate::worker::embedder::{Misses, take_turn};
use crate::worker::port::post_as;

/// Advice in the error of a job that reached its limit of bytes to fetch.
const ADVICE: &str = "Raise the limit in the status bar, or download the file.";

/// The jobs of a session, and the meter that counts what they fetch together. Dropping it stops
/// them.
pub(crate) struct Jobs {
    session: u32,
    meter: Arc<Meter>,
    /// Bytes that each job may fetch, unless the user agreed to more.
    cap: u64,
    all: Vec<Weak<JobState>>,
}

impl Jobs {
    /// Returns an empty list of jobs.
    pub(crate) fn of(session: u32) -> Self {
        let meter = Arc::new(Meter::new(u64::MAX, ADVICE));
        Self { session, meter, cap: u64::MAX, all: Vec::new() }
    }

    /// Begins a job. If only one of its kind may run, stops the running one.
    pub(crate) fn begin(&mut self, id: u32, kind: JobKind) -> Job {
        if kind.is_single() {
            self.stop(kind);
        }
        let job = Job::new(Rc::new(JobState {
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
        self.all.push(Rc::downgrade(&job.state));
        job
    }

    pub(crate) fn stop(&self, kind: JobKind) {
        for job in self.all.iter().filter_map(Weak::upgrade).filter(|job| job.kind == kind) {
            job.stop(JobEnd::Stopped);
        }
    }

    pub(crate) fn is_running(&self, kind: JobKind) -> bool {
        self.all.iter().filter_map(Weak::upgrade).any(|job| job.kind == kind)
    }

    /// Lets each job fetch `cap` bytes. Jobs whose fetching the user agreed to in full keep their
    /// permission.
    pub(crate) fn allow(&mut self, cap: u64) {
        self.cap = cap;
        for job in self.all.iter().filter_map(Weak::upgrade).filter(|job| !job.agreed.get()) {
            job.allowance.allow(cap);
        }
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        for job in self.all.iter().filter_map(Weak::upgrade) {
            job.stop(JobEnd::Replaced);
        }
    }
}

/// A request in progress. It ends when the last clone is dropped, which posts
/// [`FromWorker::Ended`].
#[derive(Clone)]
pub struct Job {
    run: Rc<Run>,
    state: Rc<JobState>,
}

/// One run of a job. If it missed bytes of an embedding page, the job is run again when its last
/// handle is dropped and the bytes have arrived.
struct Run {
    state: Rc<JobState>,
    misses: Rc<Misses>,
    again: RefCell<Option<Repeat>>,
}

/// Runs a job again.
type Repeat = Box<dyn FnOnce(Job)>;

struct JobState {
    session: u32,
    id: u32,
    kind: JobKind,
    /// Set when the job is to stop.
    stopped: Cell<Option<JobEnd>>,
    /// Aborts the requests in flight when the job stops.
    requests: RefCell<Option<AbortController>>,
    meter: Arc<Meter>,
    allowance: Arc<Allowance>,
    /// Whether the user agreed to everything that it fetches.
    agreed: Cell<bool>,
}

impl JobState {
    fn stop(&self, reason: JobEnd) {
        if self.stopped.get().is_none() {
            self.stopped.set(Some(reason));
        }
        if let Some(requests) = self.requests.take() {
            requests.abort();
        }
    }
}

impl Drop for JobState {
    fn drop(&mut self) {
        let reason = self.stopped.get().unwrap_or(JobEnd::Completed);
        post_as(self.session, self.id, &FromWorker::Ended(self.kind, reason), &JsValue::UNDEFINED);
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let again = self.again.take().filter(|_| !self.misses.is_empty());
        let Some(again) = again.filter(|_| self.state.stopped.get().is_none()) else { return };
        let (misses, job) = (self.misses.clone(), Job::new(self.state.clone()));
        spawn_local(async move {
            let abort = AbortController::new().ok();
            job.set_abort(abort.clone());
            misses.fetch(abort.map(|abort| abort.signal()).as_ref()).await;
            if job.check().is_ok() {
                again(job);
            }
        });
    }
}

impl Job {
    fn new(state: Rc<JobState>) -> Self {
        let run = Run { state: state.clone(), misses: Rc::default(), again: RefCell::default() };
        Self { run: Rc::new(run), state }
    }

    /// Runs `again` after this run if it misses bytes of an embedding page.
    pub(crate) fn repeat_with(&self, again: impl FnOnce(Self) + 'static) {
        self.run.again.replace(Some(Box::new(again)));
    }

    /// Returns whether this run missed bytes, so that its results are of no use.
    pub(crate) fn has_missed(&self) -> bool {
        !self.run.misses.is_empty()
    }

    /// Returns what it does.
    pub fn kind(&self) -> JobKind {
        self.state.kind
    }

    /// Posts a reply of this job to the page.
    pub fn post(&self, message: &FromWorker) {
        self.post_with(message, &JsValue::UNDEFINED);
    }

    /// As [`Job::post`], with finished files.
    pub fn post_with(&self, message: &FromWorker, files: &JsValue) {
        if !self.has_missed() {
            post_as(self.state.session, self.state.id, message, files);
        }
    }

    /// Checks whether the job is to stop.
    ///
    /// # Errors
    /// If the job was stopped.
    pub fn check(&self) -> Result<()> {
        if self.state.stopped.get().is_some() { Err(Error::cancelled()) } else { Ok(()) }
    }

    /// Sets the requests to abort when the job stops, and aborts those set before.
    pub(crate) fn set_abort(&self, requests: Option<AbortController>) {
        if let Some(before) = self.state.requests.replace(requests) {
            before.abort();
        }
    }

    /// Notes that the user agreed to everything that the job fetches.
    pub(crate) fn agrees_to_all(&self) {
        self.state.agreed.set(true);
        self.state.allowance.allow(u64::MAX);
    }

    /// Returns the meter of everything that the session fetches.
    pub(crate) fn meter(&self) -> &Arc<Meter> {
        &self.state.meter
    }

    /// Returns what the job may fetch.
    pub(crate) fn allowance(&self) -> &Arc<Allowance> {
        &self.state.allowance
    }

    /// Runs `work` at once, and charges what it fetches to this job.
    pub(crate) fn now<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = self.state.meter.charge(self.state.allowance.clone());
        let turn = take_turn(Some(self.run.misses.clone()));
        let done = work();
        take_turn(turn);
        self.state.meter.charge(before);
        done
    }

    /// Runs `work` concurrently with messages. Jobs take turns; bytes fetched during a turn are
    /// charged to the job that has the turn.
    pub(crate) fn spawn(self, work: impl Future<Output = ()> + 'static) {
        let mut work = Box::pin(work);
        spawn_local(std::future::poll_fn(move |context| self.now(|| work.as_mut().poll(context))));
    }
}
