//! Runs requests that take long: posts their progress, and their result or error.

use std::cell::RefCell;

use statelens_checkpoint::Result;
use wasm_bindgen::JsValue;

use crate::protocol::FromWorker;
use crate::protocol::task::{JobProgress, TaskResult};
use crate::text;
use crate::worker::job::Job;
use crate::worker::now;
use crate::worker::opened::OpenCheckpoint;

/// A running request.
pub(crate) struct Task<T> {
    /// The checkpoint that it reads.
    pub(crate) open: OpenCheckpoint,
    pub(crate) job: Job,
    began: f64,
    result: fn(Box<T>) -> TaskResult,
    /// The finished files, sent with the result.
    files: RefCell<JsValue>,
}

impl<T: 'static> Task<T> {
    /// Runs `work`, and posts its result.
    pub(crate) fn start(
        open: OpenCheckpoint,
        job: Job,
        result: fn(Box<T>) -> TaskResult,
        work: impl AsyncFnOnce(&Self) -> Result<T> + 'static,
    ) {
        let (began, files) = (now(), RefCell::default());
        let task = Self { open, job: job.clone(), began, result, files };
        job.spawn(async move {
            let kind = task.job.kind();
            let reply = match work(&task).await {
                Ok(result) => FromWorker::Done((task.result)(Box::new(result))),
                Err(_) if task.job.check().is_err() => FromWorker::Failed(kind, None),
                Err(error) => FromWorker::Failed(kind, text::failure(&error)),
            };
            task.job.post_with(&reply, &task.files.borrow());
            task.open.report_fetched(&task.job);
        });
    }
}

impl<T> Task<T> {
    /// Posts progress, and the result so far if it changed.
    pub(crate) fn progress(&self, (done, total): (u64, u64), so_far: Option<T>) {
        let now = JobProgress { done, total, millis: self.millis(), key: String::new() };
        self.post_progress(now, so_far);
    }

    /// As [`Task::progress`], with the key being written.
    pub(crate) fn post_progress(&self, now: JobProgress, so_far: Option<T>) {
        if let Some(so_far) = so_far {
            self.job.post(&FromWorker::Partial((self.result)(Box::new(so_far))));
        }
        self.job.post(&FromWorker::Progress(self.job.kind(), now));
        self.open.report_fetched(&self.job);
    }

    /// Sends files with the result.
    pub(crate) fn attach(&self, files: impl Into<JsValue>) {
        self.files.replace(files.into());
    }

    /// Returns milliseconds since the start.
    pub(crate) fn millis(&self) -> f64 {
        now() - self.began
    }
}
