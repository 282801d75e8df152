//! Receives the requests of the page in the worker, and passes each to the feature that handles it.

use std::cell::RefCell;
use std::rc::Rc;

use statelens_checkpoint::{Error, Limits};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::spawn_local;
use web_sys::{MessageEvent, MessagePort};

use crate::family::worker::FamilyState;
use crate::inspector::message::RowDetails;
use crate::messages::{get, message};
use crate::open::message::{FileName, OpenedCheckpoint};
use crate::protocol::error::ErrorText;
use crate::protocol::job::{JobEnd, JobKind};
use crate::protocol::task::TaskRequest;
use crate::protocol::{FromWorker, JobMessage, PORT, ToWorker};
use crate::worker::job::Job;
use crate::worker::opened::OpenCheckpoint;
use crate::worker::port::{post_as, scope};
use crate::worker::session::{Session, SharedSession};
use crate::worker::sources::Sources;
use crate::worker::{embedder, outputs, pool, private};
use crate::{
    assist, compare, convert, inspector, matrix, model_description, open, run_folder, scan, share,
    text,
};

/// Starts the worker: that of the page, or one of its assistants.
pub fn start() {
    if pool::is_assistant() {
        return assist::start();
    }
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

fn handle_message(current: &RefCell<SharedSession>, posted: JobMessage<ToWorker>, data: &JsValue) {
    let JobMessage { session: id, job, message } = posted;
    if message.begins_session() {
        // This drops the previous session, which stops its jobs.
        current.replace(Session::begin(id));
    }
    let session = current.borrow().clone();
    if session.borrow().id() != id {
        return post_as(
            id,
            job,
            &FromWorker::Ended(message.kind(), JobEnd::Refused),
            &JsValue::UNDEFINED,
        );
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
    embedder::begin_request();
    run(&session, job, message, data);
}

/// Runs a job: again if files of an embedding page have not arrived yet.
fn run(session: &SharedSession, job: Job, message: ToWorker, data: &JsValue) {
    if embedder::is_used() || !get(data, PORT).is_undefined() {
        let (weak, message, data) = (Rc::downgrade(session), message.clone(), data.clone());
        job.repeat_with(move |job| {
            if let Some(session) = weak.upgrade() {
                run(&session, job, message, &data);
            }
        });
    }
    job.now(|| handle_request(session, &job, message, data));
    if let Some(open) = &session.borrow().open {
        open.report_fetched(&job);
    }
}

/// Returns the files that were sent with a message, or those that an embedding page offers. The
/// session keeps the latter, because a job that is run again needs the bytes that were read.
fn sources(session: &SharedSession, names: &[FileName], data: &JsValue, job: &Job) -> Rc<Sources> {
    let Ok(port) = get(data, PORT).dyn_into::<MessagePort>() else {
        return Rc::new(Sources::sent(data, names, job));
    };
    session.borrow_mut().kept(|kept: &mut Option<Rc<Sources>>| {
        kept.get_or_insert_with(|| Rc::new(Sources::from_embedder(port, names))).clone()
    })
}

fn handle_request(session: &SharedSession, job: &Job, message: ToWorker, data: &JsValue) {
    match message {
        ToWorker::OpenAddress { url, agreed, token } => {
            session.borrow_mut().jobs.allow(agreed.cap);
            let (weak, job) = (Rc::downgrade(session), job.clone());
            job.clone().spawn(async move {
                let opened = open::worker::open_address(&url, agreed, &token, &job).await;
                if let Some(session) = weak.upgrade() {
                    store_opened(&session, &job, opened);
                }
            });
        }
        ToWorker::FreeOutputs => {
            // An output may be the open checkpoint.
            let used = session.borrow().open.as_ref().map(|open| open.sources.disk_files());
            let own = job.clone();
            job.clone().spawn(async move {
                let bytes = outputs::free(&used.unwrap_or_default()).await;
                own.post(&FromWorker::KeptOutputs(bytes));
            });
        }
        ToWorker::Allow { cap } => session.borrow_mut().jobs.allow(cap),
        ToWorker::Open { files, main, times, read_as } => {
            let limits = Limits::times(times);
            let sources = sources(session, &files, data, job);
            let opened = open::worker::open(&files, sources, main, (&limits, read_as), job);
            store_opened(session, job, opened);
        }
        ToWorker::Inspect { row } => {
            let mut session = session.borrow_mut();
            let found = match &session.open {
                Some(open) => inspector::worker::inspect(open, row),
                None => Some(RowDetails { row, ..RowDetails::default() }),
            };
            if let Some(mut inspected) = found {
                if let Some(open) = &session.open {
                    scan::worker::inspect(open, &session.found, &mut inspected);
                }
                if inspected.values.is_none() {
                    inspected.statistics = share::worker::statistics(&mut session, row);
                }
                job.post(&FromWorker::Inspected(inspected));
            }
        }
        ToWorker::Values { row, slice, start, count, shown } => {
            let session = session.borrow();
            let open = session.open.as_ref();
            if let Some(values) = open
                .and_then(|open| inspector::worker::values(open, row, slice, start, count, shown))
            {
                job.post(&FromWorker::Values(values));
            }
        }
        ToWorker::Line(row, slice) => {
            let session = session.borrow();
            let open = session.open.as_ref();
            if let Some(line) = open.and_then(|open| inspector::worker::line(open, row, slice)) {
                job.post(&FromWorker::Line(line));
            }
        }
        ToWorker::CheckRun { files, requested } | ToWorker::CheckFiles { files, requested } => {
            run_folder::worker::check_files(job.clone(), files, requested, data);
        }
        ToWorker::Close => {}
        ToWorker::OpenLink { fragment } => match share::worker::open(&fragment) {
            Ok((summary, opened)) => {
                share::worker::store(&mut session.borrow_mut(), summary);
                job.post(&FromWorker::Opened(Box::new(opened)));
            }
            Err(error) => job.post(&FromWorker::OpenFailed(*error)),
        },
        ToWorker::Share { options } => {
            if let Some(summary) = share::worker::summary(&mut session.borrow_mut()) {
                job.post(&FromWorker::Shared(Box::new(summary.shared(options))));
            }
        }
        ToWorker::Summarize { kind } => {
            if let Some(summary) = share::worker::summary(&mut session.borrow_mut()) {
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
        ToWorker::Provide(files) => {
            session.borrow_mut().kept(|model: &mut FamilyState| model.provide(files))
        }
    }
}

macro_rules! starts {
    ($($(#[$doc:meta])* $kind:ident($request:ty) -> $result:ty, starts $start:path $(, sheet $sheet:path)?;)*) => {
        /// Starts a task. The page stops its own state of it if it ends without a result.
        fn start_task(session: &SharedSession, job: Job, task: TaskRequest, data: &JsValue) {
            match task {
                $(TaskRequest::$kind(request) => $start(session, job, request, data),)*
            }
        }
    };
}

tasks!(starts);

/// Stores an opened checkpoint and posts the reply.
fn store_opened(
    session: &SharedSession,
    job: &Job,
    opened: Result<(OpenCheckpoint, OpenedCheckpoint), Box<ErrorText>>,
) {
    match opened {
        Ok((open, opened)) => {
            session.borrow_mut().open = Some(open);
            job.post(&FromWorker::Opened(Box::new(opened)));
        }
        Err(error) => job.post(&FromWorker::OpenFailed(*error)),
    }
}
