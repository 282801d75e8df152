//! Runs requests that take long: posts their progress, and their result or error.

use std::cell::RefCell;

use statelens_checkpoint::Result;
use wasm_bindgen::JsValue;

use crate::protocol::FromWorker;
use crate::protocol::task::{JobProgress, TaskResult};
use crate::text;
use crate::worker::job::Job;
use crate::worker::opened::OpenCheckpoint;
use crate::worker::port::now;

/// A running request.
pub(crate) struct Task {
    /// The checkpoint that it reads.
    pub(crate) open: OpenCheckpoint,
    pub(crate) job: Job,
    began: f64,
    /// The finished files, sent with the result.
    files: RefCell<JsValue>,
}

impl Task {
    /// Runs `work`, and posts its result.
    pub(crate) fn start<T>(
        open: OpenCheckpoint,
        job: Job,
        work: impl AsyncFnOnce(&Self) -> Result<T> + 'static,
    ) where
        Box<T>: Into<TaskResult>,
    {
        let (began, files) = (now(), RefCell::default());
        let task = Self { open, job: job.clone(), began, files };
        job.spawn(async move {
            let kind = task.job.kind();
            let reply = match work(&task).await {
                Ok(result) => FromWorker::Done(Box::new(result).into()),
                Err(_) if task.job.check().is_err() => FromWorker::Failed(kind, None),
                Err(error) => FromWorker::Failed(kind, text::failure(&error)),
            };
            task.job.post_with(&reply, &task.files.borrow());
            task.open.report_fetched(&task.job);
        });
    }

    /// Posts progress: the amount done, and the total.
    pub(crate) fn progress(&self, (done, total): (u64, u64)) {
        self.post_progress(JobProgress { done, total, millis: self.millis(), key: String::new() });
    }

    /// Posts the result so far.
    pub(crate) fn post_partial<T>(&self, so_far: T)
    where
        Box<T>: Into<TaskResult>,
    {
        self.job.post(&FromWorker::Partial(Box::new(so_far).into()));
    }

    /// As [`Task::progress`], with the key being written.
    pub(crate) fn post_progress(&self, now: JobProgress) {
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
