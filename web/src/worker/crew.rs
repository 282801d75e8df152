//! Several workers for one survey, without shared memory: each opens the checkpoint by itself, reads
//! parts of it from a stream of its own, and sends what it found as bytes. What parts come to is put
//! together in their order by the worker of the session, which takes parts itself, and those of a
//! helper that failed; so that what is found does not depend on how many there are.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use js_sys::{Array, Uint8Array, Uint32Array};
use statelens_checkpoint::{Result, TensorId};
use statelens_inspect::weights::{Survey, SurveyResults, Surveying, TensorOutcome};
use statelens_inspect::work::Work as _;
use statelens_tensor::Machine as _;
use wasm_bindgen::prelude::*;
use web_sys::{ErrorEvent, MessageEvent, Worker, WorkerOptions};

use crate::messages::get;
use crate::worker::helper::{FILES, PART, RUN, SURVEY, do_part, total};
use crate::worker::job::Job;
use crate::worker::opened::OpenCheckpoint;
use crate::worker::reading::Driver;
use crate::worker::scope;

/// Of so few bytes others are not worth their start.
const LEAST: u64 = 200_000_000;
/// Of more tensors than that, opening takes others too long.
const MOST_TENSORS: usize = 20_000;
/// The most workers that one disk, and one browser between it and them, is of use to.
const MOST: usize = 4;
/// Parts of small tensors that are asked for at once.
const TOGETHER: usize = 1_000;
/// Runs that a helper has at once, so that it need not wait for the next.
const BUSY: usize = 2;
/// Runs that may be done before what comes before them is.
const AHEAD: usize = 32;
/// Runs that each worker does, at least: the longer they are, the more seldom a stream begins again.
const TURNS: u64 = 8;
/// The most bytes of a run, of which nothing is told before it is done.
const MOST_BYTES: u64 = 64 << 20;
/// Milliseconds that are waited where all is given out.
const PAUSE: u32 = 3;

/// What hears a helper, and what hears that it failed.
type Ears = (Closure<dyn FnMut(MessageEvent)>, Closure<dyn FnMut(ErrorEvent)>);

/// What is called with what came, and with how far it is: bytes that are done, and of all; and with whether
/// it is time to tell that.
pub(super) type OnProgress<'a> = dyn FnMut(&mut SurveyResults, (u64, u64), bool) + 'a;

/// The helpers of a job. Dropped, they end at once.
pub(super) struct Crew {
    shared: Rc<RefCell<CrewWork>>,
    ears: Vec<Ears>,
}

#[derive(Default)]
struct CrewWork {
    helpers: Vec<Helper>,
    /// What each hears first: the files, and the tensors.
    files: Array,
    tensors: Array,
    /// Parts that are asked for at once, and the first of those that nobody has.
    runs: Vec<Range<usize>>,
    next: usize,
    /// The part that what comes next is put together with.
    wanted: usize,
    /// What came of parts, until it is its turn.
    came: BTreeMap<usize, Result<Option<TensorOutcome>>>,
    /// Parts that nobody else can do.
    own: Vec<usize>,
    /// Bytes of the parts that came.
    done: u64,
    sizes: Vec<u64>,
}

struct Helper {
    worker: Worker,
    /// It listens.
    ready: bool,
    /// It sees the parts that we see.
    agrees: bool,
    busy: Vec<Range<usize>>,
}

impl Drop for Crew {
    fn drop(&mut self) {
        for helper in &self.shared.borrow().helpers {
            helper.worker.set_onmessage(None);
            helper.worker.set_onerror(None);
            helper.worker.terminate();
        }
    }
}

impl Crew {
    /// No helpers.
    pub(super) fn alone() -> Self {
        Self { shared: Rc::default(), ears: Vec::new() }
    }

    /// Helpers for reading so many bytes of a checkpoint; none where they would be of no use.
    pub(super) fn of(open: &OpenCheckpoint, bytes: u64) -> Self {
        let mut crew = Self::alone();
        let many = open.checkpoint.tensors().len() > MOST_TENSORS;
        if bytes < LEAST || many {
            return crew;
        }
        let Some(files) = files(open) else { return crew };
        crew.shared.borrow_mut().files = files;
        let cores = scope().navigator().hardware_concurrency() as usize;
        for at in 1..cores.min(MOST) {
            if crew.start(at - 1).is_none() {
                break;
            }
        }
        crew
    }

    /// Whether there are no helpers.
    pub(super) fn is_empty(&self) -> bool {
        self.ears.is_empty()
    }

    /// Starts another worker of this program; nothing where the browser starts none.
    fn start(&mut self, at: usize) -> Option<()> {
        let program = get(&js_sys::global(), "program");
        let options: WorkerOptions = get(&program, "options").unchecked_into();
        let script = get(&program, "worker").as_string()?;
        let worker = Worker::new_with_options(&script, &options).ok()?;
        worker.post_message(&program).ok()?;
        let shared = self.shared.clone();
        let hear = Closure::<dyn FnMut(MessageEvent)>::new(move |event: MessageEvent| {
            shared.borrow_mut().hear(at, &event.data());
        });
        let shared = self.shared.clone();
        let fail = Closure::<dyn FnMut(ErrorEvent)>::new(move |event: ErrorEvent| {
            // What it had is done by others.
            event.prevent_default();
            shared.borrow_mut().lose(at);
        });
        worker.set_onmessage(Some(hear.as_ref().unchecked_ref()));
        worker.set_onerror(Some(fail.as_ref().unchecked_ref()));
        self.ears.push((hear, fail));
        let helper = Helper { worker, ready: false, agrees: false, busy: Vec::new() };
        self.shared.borrow_mut().helpers.push(helper);
        Some(())
    }

    /// Does what is left of a survey, with all of them.
    pub(super) async fn drive(
        &self,
        survey: &mut Survey,
        (ids, hashes): (&[TensorId], bool),
        driver: &mut Driver<'_>,
        job: &Job,
        on_progress: &mut OnProgress<'_>,
    ) -> Result<()> {
        let (_, total) = survey.progress();
        let (work, mut sums) = survey.split();
        self.shared.borrow_mut().begin(work, ids, hashes);
        loop {
            job.check()?;
            let tell = driver.beat().await;
            loop {
                let found = self.shared.borrow_mut().take(sums.next());
                let Some(found) = found else { break };
                sums.take(work, found)?;
            }
            let done = self.shared.borrow().done;
            on_progress(sums.sum(), (done, total), tell);
            if sums.next() >= work.parts() {
                return Ok(());
            }
            let Some(part) = self.shared.borrow_mut().mine() else {
                gloo_timers::future::TimeoutFuture::new(PAUSE).await;
                continue;
            };
            let mut within = |within: u64, tell: bool| {
                if tell {
                    on_progress(sums.sum(), (done + within, total), true);
                }
            };
            let found = do_part(work, part, driver, &mut within).await;
            self.shared.borrow_mut().came(part, found);
        }
    }
}

impl CrewWork {
    /// Another survey, of the parts of which nobody has done any.
    fn begin(&mut self, work: &Surveying, ids: &[TensorId], hashes: bool) {
        self.sizes = (0..work.parts()).map(|part| work.size(part)).collect();
        let turns = TURNS * (self.helpers.len() as u64 + 1);
        let each = total(&self.sizes) as u64 / turns;
        self.runs = runs(&self.sizes, each.clamp(PART, MOST_BYTES));
        (self.next, self.wanted, self.done) = (0, 0, 0);
        let ids: Vec<u32> = ids.iter().map(|id| id.0).collect();
        let tensors: [JsValue; 3] =
            [SURVEY.into(), hashes.into(), Uint32Array::from(&ids[..]).into()];
        self.tensors = Array::from_iter(tensors);
        for helper in self.helpers.iter_mut().filter(|helper| helper.ready) {
            helper.agrees = false;
            helper.post(&self.tensors);
        }
    }

    /// What a helper says: that it listens, what it sees, or what came of some parts.
    fn hear(&mut self, at: usize, told: &JsValue) {
        let number = |of: &JsValue| of.as_f64().unwrap_or(f64::NAN);
        let Some(helper) = self.helpers.get_mut(at) else { return };
        let Some(told) = told.dyn_ref::<Array>() else {
            if !std::mem::replace(&mut helper.ready, true) {
                helper.post(&self.files);
                helper.post(&self.tensors);
            }
            return;
        };
        if told.length() == 2 && number(&told.get(1)).is_finite() {
            let seen = [self.sizes.len() as f64, total(&self.sizes)];
            helper.agrees = [told.get(0), told.get(1)].map(|it| number(&it)) == seen;
            return self.give();
        }
        let first = number(&told.get(0)) as usize;
        let Some(run) = helper.busy.iter().position(|run| run.start == first) else { return };
        let run = helper.busy.remove(run);
        for (at, part) in (1..).zip(run) {
            let bytes: Option<Uint8Array> = told.get(at).dyn_into().ok();
            match bytes.and_then(|bytes| TensorOutcome::from_bytes(&bytes.to_vec())) {
                Some(found) => self.came(part, Ok(Some(found))),
                // What can't be read is told by one who has read it.
                None => self.own.push(part),
            }
        }
        self.give();
    }

    /// A helper is no more; what it had is done here.
    fn lose(&mut self, at: usize) {
        let Some(helper) = self.helpers.get_mut(at) else { return };
        helper.agrees = false;
        helper.worker.terminate();
        self.own.extend(std::mem::take(&mut helper.busy).into_iter().flatten());
    }

    fn came(&mut self, part: usize, found: Result<Option<TensorOutcome>>) {
        self.done = self.done.saturating_add(self.sizes.get(part).copied().unwrap_or(0));
        self.came.insert(part, found);
    }

    /// What came of a part, if it has.
    fn take(&mut self, part: usize) -> Option<Result<Option<TensorOutcome>>> {
        let found = self.came.remove(&part)?;
        self.wanted = part + 1;
        self.give();
        Some(found)
    }

    /// Gives runs to those who have too few.
    fn give(&mut self) {
        for at in 0..self.helpers.len() {
            while self.helpers[at].agrees && self.helpers[at].busy.len() < BUSY {
                let Some(run) = self.run() else { return };
                let helper = &mut self.helpers[at];
                let asked = [RUN, run.start as u32, run.end as u32];
                helper.post(&Array::from_iter(asked.map(JsValue::from)));
                helper.busy.push(run);
            }
        }
    }

    /// The next run, unless that is too far ahead.
    fn run(&mut self) -> Option<Range<usize>> {
        let at = self.runs.partition_point(|run| run.end <= self.wanted);
        let run = self.runs.get(self.next).filter(|_| self.next < at + AHEAD)?;
        self.next += 1;
        Some(run.clone())
    }

    /// A part that the worker of the session does.
    fn mine(&mut self) -> Option<usize> {
        if self.own.is_empty() {
            let run = self.run()?;
            self.own.extend(run);
        }
        // In their order, that others need not wait.
        let first = self.own.iter().enumerate().min_by_key(|(_, part)| **part)?.0;
        Some(self.own.swap_remove(first))
    }
}

impl Helper {
    fn post(&self, told: &Array) {
        // Names, files and numbers can be cloned.
        let _ = self.worker.post_message(told);
    }
}

/// The files of a checkpoint and how they were opened; nothing if they are not all on the disk.
fn files(open: &OpenCheckpoint) -> Option<Array> {
    let (names, files) = (Array::new(), Array::new());
    for (id, file) in open.checkpoint.files.iter() {
        names.push(&file.name.as_str().into());
        files.push(open.sources.disk(id)?.file());
    }
    let main = open.checkpoint.files.main().ok()?.0;
    let times = open.limits.raised() as f64;
    let all: [JsValue; 5] = [FILES.into(), names.into(), files.into(), main.into(), times.into()];
    Some(Array::from_iter(all))
}

/// Parts that are done together, of so many bytes: those of small tensors, or one after the other of a large one.
fn runs(sizes: &[u64], most: u64) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let mut bytes = 0u64;
    for (part, size) in sizes.iter().enumerate() {
        match runs.last_mut() {
            Some(run) if bytes.saturating_add(*size) <= most && run.len() < TOGETHER => {
                run.end = part + 1;
            }
            _ => {
                runs.push(part..part + 1);
                bytes = 0;
            }
        }
        bytes = bytes.saturating_add(*size);
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_parts_are_done_together() {
        assert_eq!(runs(&[], PART), []);
        assert_eq!(runs(&[PART, 1, 2, PART - 3, 1], PART), [0..1, 1..4, 4..5]);
        assert_eq!(runs(&[PART; 5], 2 * PART + 1), [0..2, 2..4, 4..5]);
        assert_eq!(runs(&[0; 2_500], PART), [0..1_000, 1_000..2_000, 2_000..2_500]);
        assert_eq!(runs(&[u64::MAX, u64::MAX], PART), [0..1, 1..2]);
    }
}
