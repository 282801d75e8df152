//! A worker that helps the one of the session: see [`super::crew`]. It has a copy of the files and of
//! nothing else, and knows no page.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use js_sys::{Array, Uint8Array, Uint32Array};
use statelens_checkpoint::{Checkpoint, FileId, Limits, Result, TensorId, Unwatched};
use statelens_inspect::weights::{Survey, Surveying, TensorOutcome};
use statelens_inspect::work::Work;
use statelens_tensor::Machine as _;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::spawn_local;
use web_sys::File;

use crate::protocol::job::JobKind;
use crate::protocol::opened::FileName;
use crate::worker::job::Jobs;
use crate::worker::reading::Driver;
use crate::worker::scope;
use crate::worker::sources::Sources;

/// Bytes of a part of a tensor.
pub(super) const PART: u64 = 32 << 20;

/// What it is asked stands first in a message: here are files and their names, which of them to open,
/// and within how many times the usual bounds,
pub(super) const FILES: u32 = 0;
/// here are tensors, and whether they are hashed,
pub(super) const SURVEY: u32 = 1;
/// or do these parts.
pub(super) const RUN: u32 = 2;

/// What it has.
#[derive(Default)]
pub(super) struct Helper {
    open: Option<(Arc<Checkpoint>, Rc<Sources>)>,
    survey: Option<Rc<Survey>>,
    /// Parts that it is to do, and whether it does any.
    asked: VecDeque<Range<usize>>,
    busy: bool,
}

/// Hears the worker of the session. What this takes of the program comes in its second file
/// (xtask/src/split): nobody but [`super::held`] may let a message through to here.
#[inline(never)]
pub(super) fn hear(helper: &Rc<RefCell<Helper>>, told: &Array) {
    let number = |at| told.get(at).as_f64().unwrap_or(0.0) as u32;
    let mut this = helper.borrow_mut();
    match number(0) {
        FILES => this.open = open(told),
        SURVEY => {
            let Some((checkpoint, _)) = &this.open else { return };
            let ids = Uint32Array::new(&told.get(2)).to_vec().into_iter().map(TensorId);
            let survey = match told.get(1).is_truthy() {
                true => Survey::hashing(checkpoint.clone(), ids),
                false => Survey::divided(checkpoint.clone(), ids, PART),
            };
            let work = survey.work();
            let sizes: Vec<u64> = (0..work.parts()).map(|part| work.size(part)).collect();
            tell(&Array::of2(&(sizes.len() as f64).into(), &total(&sizes).into()));
            this.survey = Some(Rc::new(survey));
        }
        _ => {
            this.asked.push_back(number(1) as usize..number(2) as usize);
            if !std::mem::replace(&mut this.busy, true) {
                spawn_local(work(helper.clone()));
            }
        }
    }
}

/// The files, opened as the worker of the session has.
fn open(told: &Array) -> Option<(Arc<Checkpoint>, Rc<Sources>)> {
    let (names, files) = (Array::from(&told.get(1)), Array::from(&told.get(2)));
    let names: Vec<FileName> = names
        .iter()
        .filter_map(|name| Some(FileName { path: name.as_string()?, size: 0 }))
        .collect();
    let files: Vec<File> = files.iter().filter_map(|file| file.dyn_into().ok()).collect();
    let sources = Rc::new(Sources::of_disk(files));
    let set = sources.set(&names).opened_at(FileId(told.get(3).as_f64()? as u32));
    let limits = Limits::times(told.get(4).as_f64()? as u64);
    let checkpoint = statelens_formats::open(set, &limits, &mut Unwatched).ok()?;
    Some((Arc::new(checkpoint), sources))
}

/// Does what it was asked for, one after the other, and says what came of each.
async fn work(helper: Rc<RefCell<Helper>>) {
    let Some((_, sources)) = helper.borrow().open.clone() else { return };
    // Nobody stops it, but by ending this worker; jobs that are let go would.
    let mut jobs = Jobs::of(0);
    let job = jobs.begin(0, JobKind::Scan);
    let mut driver = Driver::new(&[&sources], &job);
    loop {
        let next = helper.borrow_mut().asked.pop_front();
        let survey = helper.borrow().survey.clone();
        let Some((run, survey)) = next.zip(survey) else { break };
        let found = Array::of1(&(run.start as f64).into());
        for part in run {
            let outcome = do_part(survey.work(), part, &mut driver, &mut |_, _| {}).await;
            let bytes = outcome.ok().flatten().and_then(|outcome| outcome.to_bytes());
            found.push(&Uint8Array::from(&bytes.unwrap_or_default()[..]));
        }
        tell(&found);
    }
    helper.borrow_mut().busy = false;
    driver.close().await;
}

fn tell(what: &Array) {
    // Numbers and bytes can be cloned.
    let _ = scope().post_message(what);
}

/// Reads a part of a survey; `each` is called after each step with how far it is within the part, and
/// whether it is time to tell that.
pub(super) async fn do_part(
    work: &Surveying,
    part: usize,
    driver: &mut Driver<'_>,
    each: &mut dyn FnMut(u64, bool),
) -> Result<Option<TensorOutcome>> {
    let size = work.size(part);
    let (machine, read) = match work.begin(part) {
        Ok(Some(mut machine)) => {
            let each = async |machine: &mut <Surveying as Work>::Part, tell: bool| {
                each(machine.progress().0.min(size), tell);
                Ok(())
            };
            let read = driver.drive(&mut machine, each).await;
            (Some(machine), read)
        }
        Ok(None) => (None, Ok(())),
        Err(error) => (None, Err(error)),
    };
    work.end(part, machine, read)
}

/// Bytes of all parts, as both sides count them.
pub(super) fn total(sizes: &[u64]) -> f64 {
    sizes.iter().fold(0, |sum: u64, size| sum.saturating_add(*size)) as f64
}
