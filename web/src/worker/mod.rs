//! The dedicated worker: opens files with synchronous reads, answers requests about them, and runs
//! conversions on streams.

pub mod blob;
pub mod command_line;
pub mod compared;
pub mod job;
pub mod opened;
pub mod private;
pub mod reading;
pub mod remote;
pub mod selection;
pub mod session;
pub mod sources;
pub mod task;

use std::cell::RefCell;
use std::rc::Rc;

use js_sys::Array;
use statelens_checkpoint::{Error, Limits};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::spawn_local;
use web_sys::{DedicatedWorkerGlobalScope, File, MessageEvent};

use crate::inspector::message::RowDetails;
use crate::messages::{envelope, get, message, set};
use crate::open::message::OpenedCheckpoint;
use crate::protocol::job::{JobEnd, JobKind};
use crate::protocol::task::TaskRequest;
use crate::protocol::{FILES, FromWorker, HANDLE, JobMessage, ToWorker};
use crate::worker::job::Job;
use crate::worker::opened::OpenCheckpoint;
use crate::worker::session::{Session, SharedSession};
use crate::{
    compare, convert, export, inspector, matrix, model_description, open, run_folder, scan, share,
    text, verify,
};

pub fn start() {
    // The open session. Nothing else holds it strongly beyond the handling of a request.
    let current = Rc::new(RefCell::new(Session::begin(0)));
    let receive = Closure::<dyn FnMut(MessageEvent)>::new(move |event: MessageEvent| {
        let data = event.data();
        match message(&data) {
            Ok(posted) => handle_message(&current, posted, &data),
            // The page reports uncaught errors.
            Err(error) => wasm_bindgen::throw_val(error),
        }
    });
    scope().set_onmessage(Some(receive.as_ref().unchecked_ref()));
    // The listener lives as long as the worker.
    receive.forget();
    post_as(0, 0, &FromWorker::Ready, &JsValue::UNDEFINED);
    spawn_local(private::clean());
}

/// Returns the worker's global object.
pub fn scope() -> DedicatedWorkerGlobalScope {
    js_sys::global().unchecked_into()
}

/// Returns milliseconds since the worker began.
pub fn now() -> f64 {
    scope().performance().map_or(0.0, |clock| clock.now())
}

/// Posts a reply of a job to the page, with finished files.
fn post_as(session: u32, job: u32, message: &FromWorker, files: &JsValue) {
    let envelope = match envelope(&JobMessage { session, job, message }) {
        Ok(envelope) => envelope,
        Err(error) => wasm_bindgen::throw_val(error),
    };
    set(&envelope, HANDLE, files);
    // Messages are plain values and blobs, so cloning them can't fail.
    let _ = scope().post_message(&envelope);
}

/// Returns the files sent with a message.
pub(crate) fn files_of(data: &JsValue) -> Vec<File> {
    let files = Array::from(&get(data, FILES));
    files.iter().filter_map(|file| file.dyn_into().ok()).collect()
}

fn handle_message(current: &RefCell<SharedSession>, posted: JobMessage<ToWorker>, data: &JsValue) {
    let JobMessage { session: id, job, message } = posted;
    if message.begins_session() {
        // This drops the previous session, which stops its jobs.
        current.replace(Session::begin(id));
    }
    let session = current.borrow().clone();
    if session.borrow().id() != id {
        return post_as(id, job, &FromWorker::Ended(JobEnd::Refused), &JsValue::UNDEFINED);
    }
    let writes = session.borrow().jobs.is_running(JobKind::Write);
    let job = session.borrow_mut().jobs.begin(job, message.kind());
    if writes && message.kind() == JobKind::Write {
        let error = Error::refused("another file is being written");
        return job.post(&FromWorker::Failed(JobKind::Write, Some(text::error(&error))));
    }
    if matches!(message.kind(), JobKind::Open | JobKind::CheckRun) {
        // Acknowledges the request before doing anything that takes long.
        let doing = String::new();
        job.post(&FromWorker::Opening { doing, keys: 0, read: 0, calls: 0 });
    }
    job.now(|| handle_request(&session, &job, message, data));
    if let Some(open) = &session.borrow().open {
        open.report_fetched(&job);
    }
}

fn handle_request(session: &SharedSession, job: &Job, message: ToWorker, data: &JsValue) {
    match message {
        ToWorker::OpenAddress { url, agreed } => {
            session.borrow_mut().jobs.allow(agreed.cap);
            let (weak, job) = (Rc::downgrade(session), job.clone());
            job.clone().spawn(async move {
                let opened = open::worker::open_address(&url, agreed, &job).await;
                if let Some(session) = weak.upgrade() {
                    store_opened(&session, &job, opened);
                }
            });
        }
        ToWorker::Allow { cap } => session.borrow_mut().jobs.allow(cap),
        ToWorker::Open { files, main, times, read_as } => {
            let limits = Limits::times(times);
            let opened = open::worker::open(&files, files_of(data), main, (&limits, read_as), job);
            store_opened(session, job, opened);
        }
        ToWorker::Inspect { row } => {
            let session = session.borrow();
            let found = match &session.open {
                Some(open) => inspector::worker::inspect(open, row),
                None => Some(RowDetails { row, ..RowDetails::default() }),
            };
            if let Some(mut inspected) = found {
                if let Some(open) = &session.open {
                    scan::worker::inspect(open, &session.found, &mut inspected);
                }
                if inspected.values.is_none() {
                    inspected.statistics = session.statistics(row);
                }
                job.post(&FromWorker::Inspected(inspected));
            }
        }
        ToWorker::Values { row, slice, start, count } => {
            let session = session.borrow();
            let open = session.open.as_ref();
            if let Some(values) =
                open.and_then(|open| inspector::worker::values(open, row, slice, start, count))
            {
                job.post(&FromWorker::Values(values));
            }
        }
        ToWorker::CheckRun { files, requested } | ToWorker::CheckFiles { files, requested } => {
            run_folder::worker::check_files(job.clone(), files, requested, data);
        }
        ToWorker::Close => {}
        ToWorker::OpenLink { fragment } => match share::worker::open(&fragment) {
            Ok((summary, opened)) => {
                session.borrow_mut().share(summary);
                job.post(&FromWorker::Opened(Box::new(opened)));
            }
            Err(error) => job.post(&FromWorker::OpenFailed(*error)),
        },
        ToWorker::Share { options } => {
            if let Some(summary) = session.borrow_mut().summary() {
                job.post(&FromWorker::Shared(Box::new(summary.shared(options))));
            }
        }
        ToWorker::Summarize { kind } => {
            if let Some(summary) = session.borrow_mut().summary() {
                let (name, text) = summary.file(kind);
                job.post(&FromWorker::Summary { name, text });
            }
        }
        ToWorker::Plan { request, options } => {
            convert::worker::plan(session, job, request, options)
        }
        ToWorker::Start(task) => start_task(session, job.clone(), task, data),
        ToWorker::Stop(kind) => session.borrow().jobs.stop(kind),
        ToWorker::Compare(request) => {
            compare::worker::handle_request(session, job.clone(), request, data)
        }
        ToWorker::Rate(row) => scan::worker::start_rate(session, job.clone(), row),
        ToWorker::Cells(selection, window) => {
            if let Some(open) = &session.borrow().open {
                matrix::worker::post_cells(open, job, selection, window);
            }
        }
        ToWorker::SingularOffers(selection) => {
            if let Some(open) = &session.borrow().open {
                let offers = matrix::worker::singular::offers(open, &selection);
                job.post(&FromWorker::SingularOffers(selection, offers));
            }
        }
        ToWorker::DescribeModel(fetch) => {
            model_description::worker::handle_request(session, job.clone(), fetch)
        }
        ToWorker::Provide(files) => session.borrow_mut().provide(files),
    }
}

fn start_task(session: &SharedSession, job: Job, task: TaskRequest, data: &JsValue) {
    let open = session.borrow().open.clone();
    match (task, open) {
        (TaskRequest::Write { request, sink, falsify }, _) => {
            convert::worker::run(session, &job, (request, sink, falsify), data)
        }
        (TaskRequest::Verify { finite }, _) => verify::worker::start(session, job, finite, data),
        (TaskRequest::Scan, _) => scan::worker::start_scan(session, job),
        (TaskRequest::Statistics(row), _) => scan::worker::start_read(session, job, row),
        (TaskRequest::Compare(options), _) => compare::worker::start(session, job, *options),
        (TaskRequest::TensorDiff { pair, on_request }, _) => {
            compare::worker::tensor_diff::start(session, job, pair, on_request)
        }
        (TaskRequest::Renames(options), _) => {
            compare::worker::tensor_diff::start_renames(session, job, *options)
        }
        (TaskRequest::RunValues { files, requested }, _) => {
            run_folder::worker::values(job, files, requested, data)
        }
        (TaskRequest::Overview { selection, across, down }, Some(open)) => {
            matrix::worker::start(open, job, selection, (across, down))
        }
        (TaskRequest::Singular { selection, all }, Some(open)) => {
            matrix::worker::singular::start(open, job, selection, all)
        }
        (TaskRequest::Rank(request), Some(open)) => {
            matrix::worker::ranked::start(open, job, request)
        }
        (TaskRequest::Export(request), Some(open)) => export::worker::start(open, job, request),
        (_, None) => {}
    }
}

/// Stores an opened checkpoint and posts the reply.
fn store_opened(
    session: &SharedSession,
    job: &Job,
    opened: Result<(OpenCheckpoint, OpenedCheckpoint), Box<crate::protocol::error::ErrorText>>,
) {
    match opened {
        Ok((open, opened)) => {
            session.borrow_mut().open = Some(open);
            job.post(&FromWorker::Opened(Box::new(opened)));
        }
        Err(error) => job.post(&FromWorker::OpenFailed(*error)),
    }
}
