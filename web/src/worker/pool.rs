//! Divides a long pass over files on disk among further workers. Each opens the same files,
//! processes the parts that it is given, and sends their results, which are combined here in the
//! order of the parts. Workers of a page on a static host have no memory in common, so each parses
//! the structure again; that takes little time compared with reading the values.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::ops::{DerefMut, Range};
use std::rc::Rc;
use std::task::{Poll, Waker};

use gloo_timers::callback::Interval;
use js_sys::Array;
use serde_bytes::ByteBuf;
use statelens_checkpoint::{Result, TensorId};
use statelens_tensor::{InOrder, Machine as _};
use wasm_bindgen::prelude::*;
use web_sys::{Event, MessageEvent, Worker, WorkerOptions};

use crate::messages::{envelope, get, message, set};
use crate::open::message::FileName;
use crate::protocol::FILES;
use crate::protocol::assist::{ASSISTANT, AssistedPass, AssistedSide, FromAssistant, ToAssistant};
use crate::worker::job::Job;
use crate::worker::opened::OpenCheckpoint;
use crate::worker::port::scope;
use crate::worker::reading::ReportTimer;
use crate::worker::shared_work::SharedWork;

/// Fewer bytes are read sooner than assistants start.
const MIN_BYTES: u64 = 64 << 20;
/// Bytes of the parts that an assistant processes in a row, at least and at most.
const GROUP_BYTES: (u64, u64) = (4 << 20, 32 << 20);
/// Number of such parts at most.
const GROUP_PARTS: usize = 4096;
/// Number of groups for each assistant, so that progress is steady and all end at the same time.
const GROUPS_EACH: u64 = 4;
/// Number of groups that an assistant processes at the same time: it computes the values of one while
/// the browser reads another.
const GROUPS_AT_ONCE: usize = 2;
/// Number of assistants at most.
const MAX_ASSISTANTS: u64 = 8;
/// Milliseconds between two checks whether the job was stopped.
const TICK: u32 = 250;
/// Number of ticks after which assistants that have not started are not waited for any longer.
const START_TICKS: u32 = 12;

/// Processes the remaining parts of `machine` with assistants, if that is worthwhile. `sides` are
/// the checkpoints that it reads, and `pass` describes it. `each` is called after each group of
/// parts with the SHA-256 that assistants computed. Four times a second it gets the progress to
/// report: the bytes processed, also of parts that are not complete, and the total.
///
/// Returns early if an assistant fails, for example at damaged bytes: the caller processes the
/// parts from the next one on.
///
/// # Errors
/// If the job is stopped, or the whole pass must end.
pub(crate) async fn share<M, W>(
    machine: &mut M,
    sides: &[&OpenCheckpoint],
    pass: AssistedPass,
    job: &Job,
    mut each: impl FnMut(&mut M, Vec<(TensorId, String)>, Option<(u64, u64)>),
) -> Result<()>
where
    M: DerefMut<Target = InOrder<W>>,
    W: SharedWork,
{
    let bytes = (machine.next()..machine.work().parts()).map(|part| machine.work().size(part));
    let bytes = bytes.fold(0, u64::saturating_add);
    let count = assistants(bytes);
    let size = (bytes / (count.max(1) * GROUPS_EACH)).clamp(GROUP_BYTES.0, GROUP_BYTES.1);
    let mut groups = VecDeque::from(groups(machine.next(), machine.work(), size));
    let count = count.min(groups.len() as u64);
    let Some(begin) = (count > 1).then(|| begin(sides, pass)).flatten() else { return Ok(()) };
    let mut pool = Pool::start(count);
    if pool.assistants.is_empty() {
        return Ok(());
    }
    // The results of groups that wait for an earlier one, by the index of their first part.
    let mut early = BTreeMap::new();
    // The bytes processed of groups that are not combined, by the same index.
    let mut processed = BTreeMap::new();
    let (mut ticks, mut report) = (0, ReportTimer::new());
    while machine.next() < machine.work().parts() {
        let reply = pool.reply().await;
        job.check()?;
        match reply {
            Reply::Tick => {
                ticks += 1;
                if ticks > START_TICKS && pool.is_idle() {
                    return Ok(());
                }
                continue;
            }
            Reply::Failed => return Ok(()),
            Reply::From(at, FromAssistant::Loaded) => {
                pool.post(at, &begin);
                pool.feed(at, &mut groups);
                continue;
            }
            Reply::From(_, FromAssistant::Failed) => return Ok(()),
            Reply::From(_, FromAssistant::Progress { from, bytes }) => {
                processed.insert(from as usize, bytes);
                if report.is_due() {
                    each(machine, Vec::new(), Some(progress(machine, &processed)));
                }
                continue;
            }
            Reply::From(at, FromAssistant::Parts { from, found, hashes }) => {
                let parts = (from as usize..).take(found.len());
                let bytes = parts.map(|part| machine.work().size(part));
                processed.insert(from as usize, bytes.fold(0, u64::saturating_add));
                early.insert(from as usize, (found, hashes));
                pool.end(at);
                pool.feed(at, &mut groups);
            }
        }
        while let Some((found, hashes)) = early.remove(&machine.next()) {
            if !combine(machine, &found)? {
                return Ok(());
            }
            let hashes = hashes.into_iter().map(|(id, hash)| (TensorId(id), hash)).collect();
            processed = processed.split_off(&machine.next());
            let due = report.is_due().then(|| progress(machine, &processed));
            each(machine, hashes, due);
        }
    }
    Ok(())
}

/// Returns the bytes processed and the total. `processed` has the bytes of parts whose results are
/// not in `machine`.
fn progress<W: SharedWork>(machine: &InOrder<W>, processed: &BTreeMap<usize, u64>) -> (u64, u64) {
    let (done, total) = machine.progress();
    (processed.values().fold(done, |sum, bytes| sum.saturating_add(*bytes)), total)
}

/// Adds the results of parts to those of the parts before. Returns false if one is not readable.
fn combine<W: SharedWork>(machine: &mut InOrder<W>, found: &[ByteBuf]) -> Result<bool> {
    let (work, mut sums) = machine.split();
    for found in found {
        let Some(found) = W::unpack(found) else { return Ok(false) };
        sums.take(work, found)?;
    }
    Ok(true)
}

/// Divides the parts from `next` on into groups of about `size` bytes.
fn groups<W: SharedWork>(next: usize, work: &W, size: u64) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    let mut bytes = size;
    for part in next..work.parts() {
        match groups.last_mut() {
            Some(group) if bytes < size && group.len() < GROUP_PARTS => group.end = part + 1,
            _ => {
                groups.push(part..part + 1);
                bytes = 0;
            }
        }
        bytes = bytes.saturating_add(work.size(part));
    }
    groups
}

/// Returns the number of assistants for a pass of this many bytes.
fn assistants(bytes: u64) -> u64 {
    let navigator = get(&js_sys::global(), "navigator");
    let cores = get(&navigator, "hardwareConcurrency").as_f64().unwrap_or(1.0) as u64;
    match bytes < MIN_BYTES {
        true => 0,
        false => cores.min(MAX_ASSISTANTS),
    }
}

/// Returns the message that prepares a pass; `None` unless all files are on disk.
fn begin(sides: &[&OpenCheckpoint], pass: AssistedPass) -> Option<JsValue> {
    let files = Array::new();
    let side = |open: &&OpenCheckpoint| {
        let set = &open.checkpoint.files;
        let mut names = Vec::new();
        for (id, file) in set.iter() {
            files.push(open.sources.disk(id)?.file());
            names.push(FileName { path: file.name.clone(), size: set.len(id) });
        }
        let (main, times) = (set.main().ok()?.0, open.limits.multiple()?);
        Some(AssistedSide { files: names, main, times, read_as: open.read_as })
    };
    let sides = sides.iter().map(side).collect::<Option<_>>()?;
    let begin = envelope(&ToAssistant::Begin { sides, pass }).ok()?;
    set(&begin, FILES, &files);
    Some(begin.into())
}

/// The assistants of a pass. Dropping it ends them.
struct Pool {
    assistants: Vec<Assistant>,
    inbox: Rc<RefCell<Inbox>>,
    _tick: Interval,
}

struct Assistant {
    worker: Worker,
    /// Number of groups that it processes.
    groups: usize,
    _on_message: Closure<dyn FnMut(MessageEvent)>,
    _on_error: Closure<dyn FnMut(Event)>,
}

#[derive(Default)]
struct Inbox {
    replies: VecDeque<Reply>,
    waker: Option<Waker>,
}

enum Reply {
    From(usize, FromAssistant),
    /// An assistant crashed, or could not be started.
    Failed,
    Tick,
}

impl Inbox {
    fn push(inbox: &RefCell<Self>, reply: Reply) {
        let mut inbox = inbox.borrow_mut();
        inbox.replies.push_back(reply);
        if let Some(waker) = inbox.waker.take() {
            waker.wake();
        }
    }
}

impl Pool {
    fn start(count: u64) -> Self {
        let inbox = Rc::<RefCell<Inbox>>::default();
        let assistants = (0..count as usize).filter_map(|at| {
            let (replies, errors) = (inbox.clone(), inbox.clone());
            let on_message = Closure::<dyn FnMut(MessageEvent)>::new(move |event: MessageEvent| {
                let reply = message(&event.data());
                Inbox::push(&replies, reply.map_or(Reply::Failed, |reply| Reply::From(at, reply)));
            });
            let on_error = Closure::<dyn FnMut(Event)>::new(move |event: Event| {
                event.prevent_default();
                Inbox::push(&errors, Reply::Failed);
            });
            let program = get(&js_sys::global(), "program");
            let script = get(&program, "worker").as_string()?;
            let options: WorkerOptions = get(&program, "options").unchecked_into();
            options.set_name(ASSISTANT);
            let worker = Worker::new_with_options(&script, &options).ok()?;
            worker.set_onmessage(Some(on_message.as_ref().unchecked_ref()));
            worker.set_onerror(Some(on_error.as_ref().unchecked_ref()));
            let _ = worker.post_message(&program);
            Some(Assistant { worker, groups: 0, _on_message: on_message, _on_error: on_error })
        });
        let assistants = assistants.collect();
        let ticks = inbox.clone();
        let tick = Interval::new(TICK, move || Inbox::push(&ticks, Reply::Tick));
        Self { assistants, inbox, _tick: tick }
    }

    /// Waits for the next reply.
    async fn reply(&self) -> Reply {
        poll_fn(|context| {
            let mut inbox = self.inbox.borrow_mut();
            match inbox.replies.pop_front() {
                Some(reply) => Poll::Ready(reply),
                None => {
                    inbox.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Returns whether no assistant is at work.
    fn is_idle(&self) -> bool {
        self.assistants.iter().all(|assistant| assistant.groups == 0)
    }

    fn post(&self, at: usize, message: &JsValue) {
        if let Some(assistant) = self.assistants.get(at) {
            // Posting fails only if a file was revoked: then opening it fails, too.
            let _ = assistant.worker.post_message(message);
        }
    }

    /// Gives groups to an assistant as long as there are enough for those that have none.
    fn feed(&mut self, at: usize, groups: &mut VecDeque<Range<usize>>) {
        loop {
            let waiting = self.assistants.iter().filter(|other| other.groups == 0).count();
            let Some(assistant) = self.assistants.get_mut(at) else { return };
            let is_due = match assistant.groups {
                0 => true,
                busy => busy < GROUPS_AT_ONCE && groups.len() > waiting,
            };
            let Some(group) = is_due.then(|| groups.pop_front()).flatten() else { return };
            assistant.groups += 1;
            let parts = ToAssistant::Parts(group.start as u32, group.end as u32);
            if let Ok(parts) = envelope(&parts) {
                self.post(at, &parts);
            }
        }
    }

    /// Counts a group that an assistant has processed.
    fn end(&mut self, at: usize) {
        if let Some(assistant) = self.assistants.get_mut(at) {
            assistant.groups -= 1;
        }
    }
}

impl Drop for Assistant {
    fn drop(&mut self) {
        self.worker.terminate();
    }
}

/// Returns whether this worker is an assistant.
pub(crate) fn is_assistant() -> bool {
    scope().name() == ASSISTANT
}
