//! A run folder: opens the structure of its checkpoints one after the other, to tell what is
//! wrong with them.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use statelens_checkpoint::{BlockCache, FileId, FileSet, Limits, Unwatched};
use statelens_inspect::runs;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::spawn_local;
use web_sys::File;

use crate::page::bridge::get;
use crate::protocol::{FILES, FileName, FromWorker, Looked};
use crate::worker::blob::{self, BlobSource};
use crate::worker::running::{Cancel, Guard};
use crate::worker::{Desk, post, remote};

/// Blocks of the cache, and how many are kept while one is opened.
const BLOCK: usize = 1 << 20;
const BLOCKS: usize = 24;

/// Opens those of the files that are asked for, one after the other; stops when another message
/// takes the files away.
pub(super) fn look(
    desk: &Rc<RefCell<Desk>>,
    files: Vec<FileName>,
    asked: Vec<u32>,
    data: &JsValue,
) {
    let handles: Vec<File> = js_sys::Array::from(&get(data, FILES))
        .iter()
        .filter_map(|file| file.dyn_into().ok())
        .collect();
    *desk.borrow_mut() = Desk::default();
    remote::forget();
    let sources = blob::sources(handles);
    let cancel = Cancel::default();
    desk.borrow_mut().working = Some(Guard(cancel.clone()));
    spawn_local(async move {
        for file in asked {
            // Leaves room for messages; the files may be others afterwards.
            gloo_timers::future::TimeoutFuture::new(0).await;
            if cancel.check().is_err() {
                return;
            }
            post(&FromWorker::Looked(looked(&files, &sources, file)));
        }
    });
}

fn looked(files: &[FileName], sources: &[BlobSource], file: u32) -> Looked {
    // Caches of its own: those of a whole folder would be too much to keep.
    let mut set = FileSet::default();
    for (name, source) in files.iter().zip(sources) {
        set.push(name.path.clone(), Arc::new(BlockCache::new(Arc::new(*source), BLOCK, BLOCKS)));
    }
    let files = set.opened_at(FileId(file));
    let opened = statelens_formats::open(files, &Limits::default(), &mut Unwatched);
    let runs::Looked { wrong, states } = runs::Looked::of(opened.as_ref());
    Looked { file, wrong, states }
}
