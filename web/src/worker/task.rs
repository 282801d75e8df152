//! Runs requests that take long: posts their progress, and their result or error.

use std::cell::RefCell;

use statelens_checkpoint::Result;
use wasm_bindgen::JsValue;

use crate::protocol::FromWorker;
use crate::protocol::task::{JobProgress, TaskUpdate};
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
    reply: Box<dyn Fn(TaskUpdate<T>) -> FromWorker>,
    /// The finished files, sent with the result.
    files: RefCell<JsValue>,
}

impl<T: 'static> Task<T> {
    /// Runs `work`, and posts its result in the messages that `reply` makes.
    pub(crate) fn start(
        open: OpenCheckpoint,
        job: Job,
        reply: impl Fn(TaskUpdate<T>) -> FromWorker + 'static,
        work: impl AsyncFnOnce(&Self) -> Result<T> + 'static,
    ) {
        let (began, reply, files) = (now(), Box::new(reply), RefCell::default());
        let task = Self { open, job: job.clone(), began, reply, files };
        job.spawn(async move {
            let update = match work(&task).await {
                Ok(result) => TaskUpdate::Done(Box::new(result)),
                Err(_) if task.job.check().is_err() => TaskUpdate::Stopped,
                Err(error) => text::failure(&error).map_or(TaskUpdate::Stopped, TaskUpdate::Failed),
            };
            task.job.post_with(&(task.reply)(update), &task.files.borrow());
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
        let update = TaskUpdate::Progress(now, so_far.map(Box::new));
        self.job.post(&(self.reply)(update));
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
