//! A run folder: opens the structure of its checkpoints one after the other, to tell what is
//! wrong with them.

use std::rc::Rc;

use statelens_checkpoint::{FileId, Limits, Unwatched};
use statelens_inspect::runs;
use wasm_bindgen::JsValue;

use crate::protocol::{FileName, FromWorker, Looked};
use crate::worker::files_of;
use crate::worker::job::Job;
use crate::worker::sources::Sources;

/// Opens those of the files that are asked for, one after the other, until something else is
/// opened.
pub(super) fn look(job: Job, files: Vec<FileName>, asked: Vec<u32>, data: &JsValue) {
    let sources = Rc::new(Sources::of_disk(files_of(data)));
    job.clone().spawn(async move {
        for file in asked {
            // Leaves room for messages.
            gloo_timers::future::TimeoutFuture::new(0).await;
            if job.check().is_err() {
                return;
            }
            job.post(&FromWorker::Looked(looked(&files, &sources, file)));
        }
    });
}

fn looked(files: &[FileName], sources: &Sources, file: u32) -> Looked {
    // Blocks of its own: what was read of the one before is of no use.
    let files = sources.set(files).opened_at(FileId(file));
    let opened = statelens_formats::open(files, &Limits::default(), &mut Unwatched);
    let runs::Looked { wrong, states } = runs::Looked::of(opened.as_ref());
    Looked { file, wrong, states }
}
