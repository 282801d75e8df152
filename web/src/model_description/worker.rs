//! Describes the model from keys, shapes and the config next to it.

use std::rc::Rc;

use statelens_checkpoint::{grouped, size_text};
use statelens_describe::model::{Config, Fact, MemoryEstimate, Model, PartSum};

use crate::family;
use crate::family::message::NamedText;
use crate::model_description::message::{FactLine, ModelDescription};
use crate::protocol::FromWorker;
use crate::worker::job::Job;
use crate::worker::remote;
use crate::worker::session::SharedSession;

/// Models with more keys are not described: it would take a list of them.
const MAX_KEYS: u64 = 200_000;

/// Handles a request of the page; with `fetch`, the config next to a remote model is fetched first.
pub(crate) fn handle_request(session: &SharedSession, job: Job, fetch: bool) {
    let Some(open) = session.borrow().open.clone() else {
        let summary = session.borrow().shared();
        if let Some(outline) = summary {
            let model = Model::of_entries(&outline.entries, None);
            job.post(&FromWorker::ModelDescription(Box::new(describe(&model))));
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
                session.borrow_mut().note_config(config);
                handle_request(&session, own, false);
            }
        });
    }
    if open.checkpoint.unfolded().leaves > MAX_KEYS {
        return;
    }
    let config = family::worker::config_of_files(&open.checkpoint.files);
    let text = config.or_else(|| session.borrow().config());
    let config = text.as_ref().and_then(|text| {
        let value = family::worker::read_config(text).ok()?;
        Some(Config::new(text.name.clone(), value.scalars()))
    });
    let model = Model::of(&open.checkpoint, &open.leaves, config.as_ref());
    let mut description = describe(&model);
    let requested = session.borrow().requested_config();
    description.fetch =
        (server.is_some() && !requested && model.is_recognised()).then(|| name.to_owned());
    job.post(&FromWorker::ModelDescription(Box::new(description)));
}

fn describe(model: &Model) -> ModelDescription {
    if !model.is_recognised() {
        return ModelDescription::default();
    }
    let params = model.number("parameters").unwrap_or(0);
    ModelDescription {
        facts: model.facts.iter().map(fact).collect(),
        parts: model.parts.iter().map(|sum| part(sum, params)).collect(),
        more: more(model),
        config: model.config.clone(),
        findings: model.findings(),
        fetch: None,
    }
}

fn fact(fact: &Fact) -> FactLine {
    FactLine {
        name: fact.name.to_owned(),
        label: fact.label.to_owned(),
        value: fact.text(),
        source: fact.source.word().to_owned(),
        basis: fact.basis(),
        doubt: fact.doubt.clone(),
        share: 0.0,
    }
}

fn part(sum: &PartSum, params: u64) -> FactLine {
    let active = match sum.active {
        Some(active) if active != sum.params => format!("{} active, ", grouped(active)),
        Some(_) => String::new(),
        None => "active unknown, ".to_owned(),
    };
    FactLine {
        label: sum.component.word().to_owned(),
        value: grouped(sum.params),
        basis: format!("{active}{}", size_text(sum.bytes)),
        share: sum.params as f64 / params.max(1) as f64,
        ..FactLine::default()
    }
}

fn more(model: &Model) -> Vec<FactLine> {
    let line = |label: &str, value: String, basis: String| FactLine {
        label: label.to_owned(),
        value,
        basis,
        ..FactLine::default()
    };
    let mut lines = Vec::new();
    for layout in &model.quantised {
        let bits = layout.bits_per_weight().map(|bits| format!("{bits:.3} bits each"));
        let block = match layout.block.is_empty() {
            true => "block size unknown".to_owned(),
            false => format!("a scale per {}", layout.block),
        };
        let value = bits.unwrap_or_else(|| "bits unknown".to_owned());
        lines.push(line(&layout.layout, value, format!("{block}, {} tensors", layout.tensors)));
    }
    if let Some(memory) = &model.memory {
        for (label, bytes, basis) in [
            ("to load as stored", memory.stored, ""),
            ("in bfloat16", memory.bfloat16, ""),
            ("in float32", memory.float32, ""),
            ("to train with Adam", memory.training, MemoryEstimate::FORMULA),
        ] {
            lines.push(line(label, size_text(bytes), basis.to_owned()));
        }
    }
    for resolved in &model.optimizer {
        let basis = match resolved.basis.as_str() {
            "" => "their parameters are not known".to_owned(),
            basis => basis.to_owned(),
        };
        lines.push(line("optimizer entries", grouped(resolved.entries), basis));
    }
    lines
}
