//! Opens a second checkpoint to compare with.

use wasm_bindgen::JsValue;

use crate::compare::message::CompareRequest;
use crate::page::drop::{self, DroppedFile};
use crate::page::model::actor::Actor;
use crate::protocol::ToWorker;

/// Compares the open checkpoint with the one in `files`.
pub fn compare_with(actor: &Actor, files: Vec<DroppedFile>, main: Option<u32>) {
    if files.is_empty() {
        actor.update(move |model| model.dragged = None);
        return;
    }
    let handles = drop::handles(&files);
    let names = files.iter().map(|dropped| dropped.name.clone()).collect();
    actor.update(move |model| model.begin_comparison(files, main));
    let request = CompareRequest::Open { files: names, main };
    actor.bridge.post_with(&ToWorker::Compare(request), &handles, &JsValue::UNDEFINED);
}

/// Opens two checkpoints and compares them.
pub fn begin_pair(
    actor: &Actor,
    first: (Vec<DroppedFile>, Option<u32>),
    compared: (Vec<DroppedFile>, Option<u32>),
) {
    actor.replace_open(move |actor| {
        let (first, compared) = (first.clone(), compared.clone());
        actor.open_now(first.0, first.1);
        compare_with(actor, compared.0, compared.1);
    });
}
