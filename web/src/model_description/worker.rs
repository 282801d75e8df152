//! Describes the model from keys, shapes and the config next to it.

use std::rc::Rc;

use statelens_describe::model::{Config, Model};

use crate::family::message::NamedText;
use crate::family::worker::FamilyState;
use crate::model_description::message::ModelDescription;
use crate::protocol::FromWorker;
use crate::worker::job::Job;
use crate::worker::opened::OpenCheckpoint;
use crate::worker::remote;
use crate::worker::session::SharedSession;
use crate::{family, share};

/// Models with more keys are not described: it would take a list of them.
const MAX_KEYS: u64 = 200_000;

/// Handles a request of the page; with `fetch`, the config next to a remote model is fetched first.
pub(crate) fn handle_request(session: &SharedSession, job: Job, fetch: bool) {
    let open = session.borrow().open.as_ref().map(OpenCheckpoint::stored);
    let Some(open) = open else {
        let summary = share::worker::shared(&mut session.borrow_mut());
        if let Some(outline) = summary {
            post(&job, outline.model(), None);
        }
        return;
    };
    let server = open.sources.server().cloned();
    let name = family::worker::config_name(&open.checkpoint);
    if let (Some(server), true) = (&server, fetch) {
        let (weak, server, own) = (Rc::downgrade(session), server.clone(), job.clone());
        return job.spawn(async move {
            let bytes =
                remote::fetch_sibling(&server, name, family::worker::MAX_CONFIG_SIZE, &own).await;
            let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
            if let Some(session) = weak.upgrade() {
                let config = text.map(|text| NamedText { name: name.to_owned(), text });
                session.borrow_mut().kept(|model: &mut FamilyState| model.note_config(config));
                handle_request(&session, own, false);
            }
        });
    }
    if open.checkpoint.unfolded().leaves > MAX_KEYS {
        return;
    }
    let config = family::worker::config_of_files(&open.checkpoint.files);
    let (known, requested) = session
        .borrow_mut()
        .kept(|model: &mut FamilyState| (model.config(), model.requested_config()));
    let text = config.or(known);
    let config = text.as_ref().and_then(|text| {
        let value = family::worker::read_config(text).ok()?;
        Some(Config::new(text.name.clone(), value.scalars()))
    });
    let model = Model::of(&open.checkpoint, &open.leaves, config.as_ref());
    let is_wanted = server.is_some() && config.is_none() && !requested;
    let fetch = (is_wanted && model.is_recognised()).then(|| name.to_owned());
    post(&job, model, fetch);
}

fn post(job: &Job, model: Model, fetch: Option<String>) {
    let model = if model.is_recognised() { model } else { Model::default() };
    let description = ModelDescription { model, fetch };
    job.post(&FromWorker::ModelDescription(Box::new(description)));
}
