//! The session's state of the model: the recognised family, and the config next to a remote model.

use std::rc::Rc;

use crate::convert::message::ConvertOptions;
use crate::family::message::{FamilyRequest, NamedText};
use crate::family::worker::{ConversionInputs, config_name, library, recognise_model};
use crate::worker::job::Job;
use crate::worker::opened::OpenCheckpoint;

/// The number of a plan request, and its options.
pub(crate) type PlanRequest = (u32, Box<ConvertOptions>);

/// The model of the open checkpoint.
#[derive(Default)]
pub(crate) struct FamilyState {
    /// The recognised model, and the request it was recognised for.
    recognised: Option<(FamilyRequest, Rc<ConversionInputs>)>,
    /// Files of families that could not be fetched.
    failed: Vec<String>,
    /// The config next to a remote model.
    config: RemoteConfig,
}

/// The config next to a remote model.
#[derive(Default)]
enum RemoteConfig {
    /// It was not requested yet.
    #[default]
    Unknown,
    /// It is being fetched, and the last plan request waits for it.
    Awaited(Job, PlanRequest),
    /// It was fetched; `None` if there is no config.
    Known(Option<NamedText>),
}

impl FamilyState {
    /// Recognises the model of the open checkpoint; otherwise returns the paths of the family files
    /// needed for that.
    pub(crate) fn recognise(
        &mut self,
        open: &OpenCheckpoint,
        request: &FamilyRequest,
    ) -> Result<Rc<ConversionInputs>, Vec<String>> {
        let request = &FamilyRequest {
            config: request.config.clone().or_else(|| self.config()),
            ..request.clone()
        };
        if let Some((before, found)) = &self.recognised
            && before == request
        {
            return Ok(found.clone());
        }
        let mut paths = library::needed(open, request);
        paths.retain(|path| !library::has(path) && !self.failed.contains(path));
        if !paths.is_empty() {
            return Err(paths);
        }
        let found = Rc::new(recognise_model(open, request, &self.failed));
        // Files that could not be fetched are tried again the next time.
        self.recognised = self.failed.is_empty().then(|| (request.clone(), found.clone()));
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
        (wants && !library::needed(open, request).is_empty()).then(|| config_name(&open.checkpoint))
    }

    /// Keeps a plan request until the config next to a remote model is fetched; it replaces an
    /// earlier one. Returns whether the config must be fetched: false if that was begun before.
    pub(crate) fn defer_plan(&mut self, job: &Job, plan: PlanRequest) -> bool {
        let waiting = RemoteConfig::Awaited(job.clone(), plan);
        matches!(std::mem::replace(&mut self.config, waiting), RemoteConfig::Unknown)
    }

    /// Stores the config next to a remote model; `None` if the server does not have one. Returns the
    /// request that waits for it.
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
        match &self.config {
            RemoteConfig::Known(text) => text.clone(),
            RemoteConfig::Unknown | RemoteConfig::Awaited(..) => None,
        }
    }

    /// Stores the config next to a remote model, unless a plan waits for it.
    pub(crate) fn note_config(&mut self, config: Option<NamedText>) {
        if matches!(self.config, RemoteConfig::Unknown) {
            self.config = RemoteConfig::Known(config);
        }
    }

    /// Stores files of families.
    pub(crate) fn provide(&mut self, files: Vec<(String, Option<String>)>) {
        for (path, text) in files {
            match text {
                Some(text) => library::take(&path, &text),
                None => self.failed.push(path),
            }
        }
    }
}
