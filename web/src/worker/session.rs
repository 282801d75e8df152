//! What is open in the worker, and what is done with it.
//!
//! A session holds everything of it: the files, the checkpoint and its leaves, what was made of
//! them, how much may be fetched, and the jobs. Opening something else begins another one; the one
//! before is dropped, which stops its jobs. What goes on beside messages holds what it reads, and
//! the session only weakly.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use js_sys::Array;
use statelens_checkpoint::{Checkpoint, Error, Leaf, Limits, Result};
use statelens_inspect::{Parameter, Parameters};
use statelens_remote::{Allowance, Meter};
use wasm_bindgen::JsValue;
use wasm_bindgen_futures::spawn_local;
use web_sys::AbortController;

use crate::protocol::family::{Asked, Text};
use crate::protocol::{Ended, Fact, FromWorker, JobKind, ToWorker};
use crate::worker::sources::Sources;
use crate::worker::{compare, family, found, planning, post_as, share, statistics};

/// How more can be fetched.
const ADVICE: &str = "Allow more at the bottom of the page, or download the file.";

/// A session, and who answers for it.
pub(super) type Shared = Rc<RefCell<Session>>;

/// An open checkpoint, its leaves by row, and the files that it is read from.
#[derive(Clone)]
pub struct OpenCheckpoint {
    /// The checkpoint.
    pub checkpoint: Arc<Checkpoint>,
    /// Its leaves, in the order of the rows that the page was sent.
    pub leaves: Arc<[Leaf]>,
    /// Its files.
    pub sources: Rc<Sources>,
    /// Within what it was opened.
    pub limits: Limits,
    /// What optimizers' numbers stand for, once that was asked.
    parameters: Rc<OnceCell<Parameters>>,
}

impl OpenCheckpoint {
    /// An open checkpoint with its leaves.
    pub fn new(
        checkpoint: Arc<Checkpoint>,
        leaves: Arc<[Leaf]>,
        sources: Rc<Sources>,
        limits: Limits,
    ) -> Self {
        Self { checkpoint, leaves, sources, limits, parameters: Rc::default() }
    }

    /// The parameter that an entry of an optimizer's state belongs to.
    #[must_use]
    pub fn parameter(&self, leaf: &Leaf) -> Option<&Parameter> {
        let flat = leaf.flat.to_lossy();
        if !flat.contains("state.") {
            return None;
        }
        let all = self.parameters.get_or_init(|| Parameters::of(&self.checkpoint, &self.leaves));
        all.of_key(&flat)
    }

    /// Tells the page what has been fetched of it, if it is a remote one.
    pub(super) fn tell_fetched(&self, job: &Job) {
        if let Some(server) = self.sources.server() {
            server.tell(job);
        }
    }
}

/// What is open.
pub(super) struct Session {
    id: u32,
    /// The checkpoint, once it is open.
    pub(super) open: Option<OpenCheckpoint>,
    /// The plan that was made last, and the request that it answers.
    pub(super) plan: Option<(u32, planning::Made)>,
    /// Which model it is, by what was asked about it last.
    family: Option<(Asked, Rc<family::Found>)>,
    /// Files of families that could not be fetched.
    failed: Vec<String>,
    /// The config beside a remote model.
    config: Beside,
    /// What is shared: made when it is first asked for, or opened from a link.
    summary: Option<share::Summary>,
    /// What was found of the values of its tensors.
    pub(super) found: found::Kept,
    /// The checkpoint that it is compared with.
    pub(super) second: compare::Second,
    meter: Arc<Meter>,
    /// What a job may fetch that nothing else was agreed to for.
    cap: u64,
    jobs: Vec<Weak<Inner>>,
}

/// The config beside a remote model.
enum Beside {
    /// Nobody has asked for it.
    Unknown,
    /// It is on its way, and the last plan that was asked for waits for it.
    Awaited(Box<(Job, ToWorker)>),
    /// It has come; nothing if there is none.
    Known(Option<Text>),
}

impl Beside {
    fn text(&self) -> Option<Text> {
        match self {
            Self::Known(text) => text.clone(),
            Self::Unknown | Self::Awaited(_) => None,
        }
    }
}

impl Session {
    /// One in which nothing is open yet.
    pub(super) fn begin(id: u32) -> Shared {
        Rc::new(RefCell::new(Self {
            id,
            open: None,
            plan: None,
            family: None,
            failed: Vec::new(),
            config: Beside::Unknown,
            summary: None,
            found: found::Kept::default(),
            second: compare::Second::default(),
            meter: Arc::new(Meter::new(u64::MAX, ADVICE)),
            cap: u64::MAX,
            jobs: Vec::new(),
        }))
    }

    /// Its number, which the page gave it.
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// A job begins; one of its kind that is under way is stopped, if there is only one at a time.
    pub(super) fn job(&mut self, id: u32, kind: JobKind) -> Job {
        if kind.is_single() {
            self.stop(kind);
        }
        let job = Job(Rc::new(Inner {
            session: self.id,
            id,
            kind,
            stopped: Cell::new(None),
            requests: RefCell::new(None),
            meter: self.meter.clone(),
            allowance: Allowance::new(self.cap),
            agreed: Cell::new(false),
        }));
        self.jobs.retain(|job| job.strong_count() > 0);
        self.jobs.push(Rc::downgrade(&job.0));
        job
    }

    /// Stops the jobs of a kind.
    pub(super) fn stop(&self, kind: JobKind) {
        for job in self.jobs.iter().filter_map(Weak::upgrade).filter(|job| job.kind == kind) {
            job.stop(Ended::Stopped);
        }
    }

    /// Whether a job of a kind is under way.
    pub(super) fn is_doing(&self, kind: JobKind) -> bool {
        self.jobs.iter().filter_map(Weak::upgrade).any(|job| job.kind == kind)
    }

    /// Lets each job fetch so many bytes; those that may fetch all they need still may.
    pub(super) fn allow(&mut self, cap: u64) {
        self.cap = cap;
        for job in self.jobs.iter().filter_map(Weak::upgrade).filter(|job| !job.agreed.get()) {
            job.allowance.allow(cap);
        }
    }

    /// Which model the open checkpoint is of; or the files of families that it takes to tell.
    pub(super) fn family(
        &mut self,
        open: &OpenCheckpoint,
        asked: &Asked,
    ) -> std::result::Result<Rc<family::Found>, Vec<String>> {
        let asked =
            &Asked { config: asked.config.clone().or_else(|| self.config.text()), ..asked.clone() };
        if let Some((before, found)) = &self.family
            && before == asked
        {
            return Ok(found.clone());
        }
        let mut wanted = family::library::needed(open, asked);
        wanted.retain(|path| !family::library::has(path) && !self.failed.contains(path));
        if !wanted.is_empty() {
            return Err(wanted);
        }
        let found = Rc::new(family::looks(open, asked, &self.failed));
        // What could not be fetched is tried again the next time.
        self.family = self.failed.is_empty().then(|| (asked.clone(), found.clone()));
        self.failed.clear();
        Ok(found)
    }

    /// The name of the config beside a remote model, if it is not known yet.
    pub(super) fn wants_config(
        &self,
        open: &OpenCheckpoint,
        asked: &Asked,
    ) -> Option<&'static str> {
        let remote = open.sources.server().is_some();
        let known = matches!(self.config, Beside::Known(_));
        let wants = remote && !known && asked.config.is_none();
        // What no family knows needs none.
        (wants && !family::library::needed(open, asked).is_empty())
            .then(|| family::config_name(&open.checkpoint))
    }

    /// Notes who waits for the config beside a remote model, in the place of who waited before.
    /// Whether it has to be asked for: it is not on its way yet.
    pub(super) fn awaits_config(&mut self, job: &Job, plan: ToWorker) -> bool {
        let waiting = Beside::Awaited(Box::new((job.clone(), plan)));
        matches!(std::mem::replace(&mut self.config, waiting), Beside::Unknown)
    }

    /// Takes the config beside a remote model, or that there is none; gives who waits for it.
    pub(super) fn take_config(&mut self, config: Option<Text>) -> Option<Box<(Job, ToWorker)>> {
        match std::mem::replace(&mut self.config, Beside::Known(config)) {
            Beside::Awaited(waiting) => Some(waiting),
            Beside::Unknown | Beside::Known(_) => None,
        }
    }

    /// Takes files of families.
    pub(super) fn provide(&mut self, files: Vec<(String, Option<String>)>) {
        for (path, text) in files {
            match text {
                Some(text) => family::library::take(&path, &text),
                None => self.failed.push(path),
            }
        }
    }

    /// Puts in what can be shared.
    pub(super) fn share(&mut self, summary: share::Summary) {
        self.summary = Some(summary);
    }

    /// What can be shared of what is open.
    pub(super) fn summary(&mut self) -> Option<share::Summary> {
        if self.summary.is_none() {
            let found = self.found.borrow();
            self.summary = self.open.as_ref().map(|open| share::Summary::of(open, &found));
        }
        self.summary.clone()
    }

    /// All values were asked for: what was found of them is shared from now on.
    pub(super) fn scanned(&mut self) {
        self.found.borrow_mut().scanned = true;
        self.summary.take_if(|summary| !summary.is_measured());
    }

    /// Statistics of a row that the summary has.
    pub(super) fn statistics(&self, row: u32) -> Vec<Fact> {
        let summary = self.summary.as_ref();
        let known = summary.and_then(|summary| Some((summary, summary.statistics(row)?)));
        known
            .map(|(summary, found)| statistics::facts(&found, summary.is_of_integers(row)))
            .unwrap_or_default()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        for job in self.jobs.iter().filter_map(Weak::upgrade) {
            job.stop(Ended::Replaced);
        }
    }
}

/// Something that was asked for. It is over when nobody holds it any more, which the page is told.
#[derive(Clone)]
pub struct Job(Rc<Inner>);

struct Inner {
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

impl Inner {
    fn stop(&self, why: Ended) {
        if self.stopped.get().is_none() {
            self.stopped.set(Some(why));
        }
        if let Some(requests) = self.requests.take() {
            requests.abort();
        }
    }
}

impl Drop for Inner {
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
