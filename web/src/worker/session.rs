//! What is open in the worker, and what is done with it.
//!
//! A session holds everything of it: the files, the checkpoint and its leaves, what was made of
//! them, how much may be fetched, and the jobs. Opening something else begins another one; the one
//! before is dropped, which stops its jobs. What goes on beside messages holds what it reads, and
//! the session only weakly.

use std::cell::RefCell;
use std::rc::Rc;

use crate::protocol::conversion::ConvertOptions;
use crate::protocol::family::{FamilyRequest, NamedText};
use crate::protocol::inspected::Fact;
use crate::worker::job::{Job, Jobs};
use crate::worker::opened::OpenCheckpoint;
use crate::worker::second::Second;
use crate::worker::{family, measurements, planning, share, statistics};

/// The number of a request for a plan, and its options.
pub(super) type PlanRequest = (u32, Box<ConvertOptions>);

/// A session, and who answers for it.
pub(super) type SharedSession = Rc<RefCell<Session>>;

/// What is open.
pub(super) struct Session {
    id: u32,
    /// The checkpoint, once it is open.
    pub(super) open: Option<OpenCheckpoint>,
    /// The plan that was made last, and the request that it answers.
    pub(super) plan: Option<(u32, planning::PlannedOutput)>,
    /// Which model it is, by what was asked about it last.
    family: Option<(FamilyRequest, Rc<family::ConversionInputs>)>,
    /// Files of families that could not be fetched.
    failed: Vec<String>,
    /// The config beside a remote model.
    config: Beside,
    /// What is shared: made when it is first asked for, or opened from a link.
    summary: Option<share::MadeSummary>,
    /// What was found of the values of its tensors.
    pub(super) found: measurements::SharedMeasurements,
    /// The checkpoint that it is compared with.
    pub(super) second: Second,
    pub(super) jobs: Jobs,
}

/// The config beside a remote model.
enum Beside {
    /// Nobody has asked for it.
    Unknown,
    /// It is on its way, and the last plan that was asked for waits for it.
    Awaited(Job, PlanRequest),
    /// It has come; nothing if there is none.
    Known(Option<NamedText>),
}

impl Beside {
    fn text(&self) -> Option<NamedText> {
        match self {
            Self::Known(text) => text.clone(),
            Self::Unknown | Self::Awaited(..) => None,
        }
    }
}

impl Session {
    /// One in which nothing is open yet.
    pub(super) fn begin(id: u32) -> SharedSession {
        Rc::new(RefCell::new(Self {
            id,
            open: None,
            plan: None,
            family: None,
            failed: Vec::new(),
            config: Beside::Unknown,
            summary: None,
            found: measurements::SharedMeasurements::default(),
            second: Second::default(),
            jobs: Jobs::of(id),
        }))
    }

    /// Its number, which the page gave it.
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Which model the open checkpoint is of; or the files of families that it takes to tell.
    pub(super) fn family(
        &mut self,
        open: &OpenCheckpoint,
        request: &FamilyRequest,
    ) -> std::result::Result<Rc<family::ConversionInputs>, Vec<String>> {
        let asked = &FamilyRequest {
            config: request.config.clone().or_else(|| self.config.text()),
            ..request.clone()
        };
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
        asked: &FamilyRequest,
    ) -> Option<&'static str> {
        let remote = open.sources.server().is_some();
        let known = matches!(self.config, Beside::Known(_));
        let wants = remote && !known && asked.config.is_none();
        // What no family knows needs none.
        (wants && !family::library::needed(open, asked).is_empty())
            .then(|| family::config_name(&open.checkpoint))
    }

    /// Keeps a request for a plan until the config beside a remote model is fetched; it replaces an earlier one. Returns
    /// whether the config must be fetched: false if that was begun before.
    pub(super) fn awaits_config(&mut self, job: &Job, plan: PlanRequest) -> bool {
        let waiting = Beside::Awaited(job.clone(), plan);
        matches!(std::mem::replace(&mut self.config, waiting), Beside::Unknown)
    }

    /// Stores the config beside a remote model, or that there is none. Returns the request that waits for it.
    pub(super) fn take_config(&mut self, config: Option<NamedText>) -> Option<(Job, PlanRequest)> {
        match std::mem::replace(&mut self.config, Beside::Known(config)) {
            Beside::Awaited(job, plan) => Some((job, plan)),
            Beside::Unknown | Beside::Known(_) => None,
        }
    }

    /// Whether it was asked for the config beside a remote model.
    pub(super) fn knows_config(&self) -> bool {
        !matches!(self.config, Beside::Unknown)
    }

    /// The config beside a remote model, if it was fetched.
    pub(super) fn config(&self) -> Option<NamedText> {
        self.config.text()
    }

    /// Notes the config beside a remote model, unless a plan waits for it.
    pub(super) fn note_config(&mut self, config: Option<NamedText>) {
        if matches!(self.config, Beside::Unknown) {
            self.config = Beside::Known(config);
        }
    }

    /// The outline of a summary that was opened from a link.
    pub(super) fn shared(&self) -> Option<Rc<statelens_inspect::share::Outline>> {
        self.summary.as_ref().map(|summary| summary.outline.clone())
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
    pub(super) fn share(&mut self, summary: share::MadeSummary) {
        self.summary = Some(summary);
    }

    /// What can be shared of what is open.
    pub(super) fn summary(&mut self) -> Option<share::MadeSummary> {
        if self.summary.is_none() {
            let found = self.found.borrow();
            self.summary = self.open.as_ref().map(|open| share::MadeSummary::of(open, &found));
        }
        self.summary.clone()
    }

    /// All values were asked for: what was found of them is shared from now on.
    pub(super) fn scanned(&mut self) {
        self.found.borrow_mut().scanned = true;
        if self.open.is_some() {
            self.summary = None;
        }
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
