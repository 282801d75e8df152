//! A run folder: opens its checkpoints one after the other to report their problems, and
//! reads their values on request.

use std::rc::Rc;
use std::sync::Arc;

use statelens_checkpoint::{FileId, Limits, Result, Unwatched};
use statelens_compare::runs::{GroupValues, Grouping, OpenCheck, TensorGroups};
use statelens_tensor::Machine as _;
use wasm_bindgen::JsValue;

use crate::open::message::FileName;
use crate::protocol::FromWorker;
use crate::protocol::task::{JobProgress, TaskResult};
use crate::run_folder::message::{FileValues, RunValuesRequest};
use crate::worker::job::Job;
use crate::worker::port::now;
use crate::worker::reading::drive;
use crate::worker::session::SharedSession;
use crate::worker::sources::Sources;

/// Opens the requested files one after the other, until something else is opened.
pub(crate) fn check_files(job: Job, files: Vec<FileName>, requested: Vec<u32>, data: &JsValue) {
    let sources = Rc::new(Sources::sent(data, &files, &job));
    job.clone().spawn(async move {
        for file in requested {
            // Lets the worker receive messages.
            gloo_timers::future::TimeoutFuture::new(0).await;
            if job.check().is_err() {
                return;
            }
            job.post(&FromWorker::FileChecked(file, check_file(&files, &sources, file)));
        }
    });
}

fn check_file(files: &[FileName], sources: &Sources, file: u32) -> OpenCheck {
    // A new cache: blocks of the previous file are of no use.
    let files = sources.set(files).opened_at(FileId(file));
    OpenCheck::open(&files, &Limits::default())
}

/// Reads all values of the requested files, one after the other.
pub(crate) fn values(_: &SharedSession, job: Job, request: RunValuesRequest, data: &JsValue) {
    let RunValuesRequest { files, requested } = request;
    let sources = Rc::new(Sources::sent(data, &files, &job));
    job.clone().spawn(async move {
        let began = now();
        let size = |file: u32| files.get(file as usize).map_or(0, |file| file.size);
        let total = requested.iter().fold(0u64, |all, file| all.saturating_add(size(*file)));
        let mut before = 0u64;
        for file in requested {
            let report = |part: (u64, u64)| {
                // Scales the progress over values to the size of the file, which may be compressed.
                let part = size(file) as f64 * (part.0 as f64 / part.1.max(1) as f64).min(1.0);
                let done = before.saturating_add(part as u64);
                let millis = now() - began;
                let now = JobProgress { done, total, millis, key: String::new() };
                job.post(&FromWorker::Progress(job.kind(), now));
            };
            report((0, 1));
            let (problem, groups) = match read(&files, &sources, file, &job, report).await {
                Ok((groups, problem)) => (problem, groups),
                Err(_) if job.check().is_err() => break,
                Err(error) => (error.what().to_owned(), Default::default()),
            };
            let values = vec![FileValues { file, problem, groups }];
            job.post(&FromWorker::Partial(Box::new(values).into()));
            before = before.saturating_add(size(file));
        }
        job.post(&FromWorker::Done(TaskResult::RunValues(Box::default())));
    });
}

async fn read(
    files: &[FileName],
    sources: &Rc<Sources>,
    file: u32,
    job: &Job,
    report: impl Fn((u64, u64)),
) -> Result<([Vec<GroupValues>; 2], String)> {
    let files = sources.set(files).opened_at(FileId(file));
    let limits = Limits::default();
    let checkpoint = Arc::new(statelens_formats::open(files, &limits, &mut Unwatched)?);
    checkpoint.unfolded().check("reading all values", &limits)?;
    let leaves = checkpoint.leaves();
    let mut all =
        [Grouping::State, Grouping::Role].map(|by| TensorGroups::new(&checkpoint, &leaves, by));
    let mut survey = all[0].survey(&checkpoint, &leaves, u64::MAX);
    drive(&mut survey, &[sources], job, |survey, time| {
        let found = survey.take();
        all.iter_mut().for_each(|groups| groups.learn(&found));
        if time {
            report(survey.progress());
        }
    })
    .await?;
    let [states, roles] = all.map(TensorGroups::finish);
    Ok(([states.0, roles.0], states.1))
}
