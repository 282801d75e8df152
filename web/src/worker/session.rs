//! Sessions: an open checkpoint and everything derived from it.
//!
//! A session holds the files, the checkpoint and its leaves, results, the limit on fetching, and
//! the jobs. Opening something else begins a new session and drops the previous one, which stops
//! its jobs. Jobs that run concurrently with messages hold what they read strongly, but the session
//! only weakly.

use std::cell::RefCell;
use std::rc::Rc;

use statelens_values::SummaryStatistics;

use crate::convert::message::ConvertOptions;
use crate::family::message::{FamilyRequest, NamedText};
use crate::worker::compared::ComparedCheckpoint;
use crate::worker::job::{Job, Jobs};
use crate::worker::opened::OpenCheckpoint;
use crate::{family, plan, share, values};

/// The number of a plan request, and its options.
pub(crate) type PlanRequest = (u32, Box<ConvertOptions>);

pub(crate) type SharedSession = Rc<RefCell<Session>>;

pub(crate) struct Session {
    id: u32,
    /// The checkpoint, once it is open.
    pub(crate) open: Option<OpenCheckpoint>,
    /// The last plan, and the request that it answers.
    pub(crate) plan: Option<(u32, plan::worker::PlannedOutput)>,
    /// The recognised model, and the request it was recognised for.
    family: Option<(FamilyRequest, Rc<family::worker::ConversionInputs>)>,
    /// Files of families that could not be fetched.
    failed: Vec<String>,
    /// The config next to a remote model.
    config: RemoteConfig,
    /// The summary for sharing: made on first use, or opened from a link.
    summary: Option<share::worker::MadeSummary>,
    /// Results of reading its tensors.
    pub(crate) found: values::worker::SharedMeasurements,
    pub(crate) compared: ComparedCheckpoint,
    pub(crate) jobs: Jobs,
}

/// The config next to a remote model.
enum RemoteConfig {
    /// It was not requested yet.
    Unknown,
    /// It is being fetched, and the last plan request waits for it.
    Awaited(Job, PlanRequest),
    /// It was fetched; `None` if there is no config.
    Known(Option<NamedText>),
}

impl RemoteConfig {
    fn text(&self) -> Option<NamedText> {
        match self {
            Self::Known(text) => text.clone(),
            Self::Unknown | Self::Awaited(..) => None,
        }
    }
}

impl Session {
    /// Begins a session without an open checkpoint.
    pub(crate) fn begin(id: u32) -> SharedSession {
        Rc::new(RefCell::new(Self {
            id,
            open: None,
            plan: None,
            family: None,
            failed: Vec::new(),
            config: RemoteConfig::Unknown,
            summary: None,
            found: values::worker::SharedMeasurements::default(),
            compared: ComparedCheckpoint::default(),
            jobs: Jobs::of(id),
        }))
    }

    /// Returns the number that the page gave it.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Recognises the model of the open checkpoint; otherwise returns the paths of the family files
    /// needed for that.
    pub(crate) fn family(
        &mut self,
        open: &OpenCheckpoint,
        request: &FamilyRequest,
    ) -> std::result::Result<Rc<family::worker::ConversionInputs>, Vec<String>> {
        let request = &FamilyRequest {
            config: request.config.clone().or_else(|| self.config.text()),
            ..request.clone()
        };
        if let Some((before, found)) = &self.family
            && before == request
        {
            return Ok(found.clone());
        }
        let mut paths = family::worker::library::needed(open, request);
        paths.retain(|path| !family::worker::library::has(path) && !self.failed.contains(path));
        if !paths.is_empty() {
            return Err(paths);
        }
        let found = Rc::new(family::worker::recognise_model(open, request, &self.failed));
        // Files that could not be fetched are tried again the next time.
        self.family = self.failed.is_empty().then(|| (request.clone(), found.clone()));
        self.failed.clear();
        Ok(found)
    }

    /// Returns the name of the config next to a remote model, if it should be fetched first.
    pub(crate) fn config_to_fetch(
        &self,
        open: &OpenCheckpoint,
        request: &FamilyRequest,
    ) -> Option<&'static str> {
        let remote = open.sources.server().is_some();
        let known = matches!(self.config, RemoteConfig::Known(_));
        let wants = remote && !known && request.config.is_none();
        // A model that no family covers needs no config.
        (wants && !family::worker::library::needed(open, request).is_empty())
            .then(|| family::worker::config_name(&open.checkpoint))
    }

    /// Keeps a plan request until the config next to a remote model is fetched; it replaces an
    /// earlier one. Returns whether the config must be fetched: false if that was begun before.
    pub(crate) fn defer_plan(&mut self, job: &Job, plan: PlanRequest) -> bool {
        let waiting = RemoteConfig::Awaited(job.clone(), plan);
        matches!(std::mem::replace(&mut self.config, waiting), RemoteConfig::Unknown)
    }

    /// Stores the config next to a remote model; `None` if the server does not have one. Returns
    /// the request that
    /// waits for it.
    pub(crate) fn take_config(&mut self, config: Option<NamedText>) -> Option<(Job, PlanRequest)> {
        match std::mem::replace(&mut self.config, RemoteConfig::Known(config)) {
            RemoteConfig::Awaited(job, plan) => Some((job, plan)),
            RemoteConfig::Unknown | RemoteConfig::Known(_) => None,
        }
    }

    /// Returns whether the config next to a remote model was requested.
    pub(crate) fn requested_config(&self) -> bool {
        !matches!(self.config, RemoteConfig::Unknown)
    }

    /// Returns the config next to a remote model, if it was fetched.
    pub(crate) fn config(&self) -> Option<NamedText> {
        self.config.text()
    }

    /// Stores the config next to a remote model, unless a plan waits for it.
    pub(crate) fn note_config(&mut self, config: Option<NamedText>) {
        if matches!(self.config, RemoteConfig::Unknown) {
            self.config = RemoteConfig::Known(config);
        }
    }

    /// Returns the outline of a summary that was opened from a link.
    pub(crate) fn shared(&self) -> Option<Rc<statelens_describe::share::Outline>> {
        self.summary.as_ref().map(|summary| summary.outline.clone())
    }

    /// Stores files of families.
    pub(crate) fn provide(&mut self, files: Vec<(String, Option<String>)>) {
        for (path, text) in files {
            match text {
                Some(text) => family::worker::library::take(&path, &text),
                None => self.failed.push(path),
            }
        }
    }

    /// Stores a summary for sharing.
    pub(crate) fn share(&mut self, summary: share::worker::MadeSummary) {
        self.summary = Some(summary);
    }

    /// Returns the open checkpoint, with the results of reading its values.
    pub(crate) fn measurements(
        &self,
    ) -> Option<(OpenCheckpoint, values::worker::SharedMeasurements)> {
        Some((self.open.clone()?, self.found.clone()))
    }

    /// Returns both checkpoints of a comparison.
    pub(crate) fn compared_sides(&self) -> Option<(OpenCheckpoint, OpenCheckpoint)> {
        self.compared.sides(self.open.as_ref())
    }

    /// Returns the summary of the open checkpoint, making it on first use.
    pub(crate) fn summary(&mut self) -> Option<share::worker::MadeSummary> {
        if self.summary.is_none() {
            let found = self.found.borrow();
            self.summary =
                self.open.as_ref().map(|open| share::worker::MadeSummary::of(open, &found));
        }
        self.summary.clone()
    }

    /// Notes that all values were scanned: the next summary includes the results.
    pub(crate) fn scanned(&mut self) {
        self.found.borrow_mut().scanned = true;
        if self.open.is_some() {
            self.summary = None;
        }
    }

    /// Returns the statistics of a row in the summary.
    pub(crate) fn statistics(&self, row: u32) -> Option<SummaryStatistics> {
        self.summary.as_ref()?.statistics(row)
    }
}
