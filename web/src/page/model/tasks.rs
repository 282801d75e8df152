//! Applies the progress and the results of tasks to the page's state.

use std::rc::Rc;

use web_sys::File;

use crate::page::model::PageModel;
use crate::protocol::error::ErrorText;
use crate::protocol::job::JobKind;
use crate::protocol::task::{JobProgress, TaskResult};
use crate::state::task::TaskState;

/// Where the page keeps the state of a task. Features implement it for the result of their task.
pub(crate) trait TaskSlot {
    /// Returns the task; `None` if it is not shown any more.
    fn task(model: &mut PageModel) -> Option<&mut dyn TaskState>;

    /// Stores the result, or the result so far. A conversion's file comes with it.
    fn store(self: Box<Self>, model: &mut PageModel, done: bool, file: Option<File>);

    /// Notes progress for more than the task itself.
    fn note_progress(_model: &mut PageModel, _now: &JobProgress) {}

    /// Prepares for the end of the task, with its error.
    fn prepare_end(_model: &mut PageModel, _error: Option<&ErrorText>) {}

    /// Returns what the task does, in words, if the user would miss it: "comparing a.pt".
    fn lost_work(_model: &PageModel) -> Option<String> {
        None
    }
}

macro_rules! slots {
    ($($(#[$doc:meta])* $kind:ident($request:ty) -> $result:ty, starts $start:path $(, sheet $sheet:path)?;)*) => {
        impl PageModel {
            /// Returns the task of a kind; `None` if it is not shown any more, or not a task.
            fn task(&mut self, kind: JobKind) -> Option<&mut dyn TaskState> {
                match kind {
                    $(JobKind::$kind => <$result as TaskSlot>::task(self),)*
                    _ => None,
                }
            }

            pub(super) fn note_progress(&mut self, kind: JobKind, now: JobProgress) {
                match kind {
                    $(JobKind::$kind => <$result as TaskSlot>::note_progress(self, &now),)*
                    _ => {}
                }
                if let Some(task) = self.task(kind) {
                    task.progress(now);
                }
            }

            pub(super) fn end_task(&mut self, kind: JobKind, error: Option<ErrorText>) {
                match kind {
                    $(JobKind::$kind => <$result as TaskSlot>::prepare_end(self, error.as_ref()),)*
                    _ => {}
                }
                match (self.task(kind), error) {
                    (Some(task), Some(error)) => task.fail(error),
                    (Some(task), None) => task.stop(),
                    (None, _) => {}
                }
            }

            /// Stores the result of a task, or the result so far.
            pub(super) fn set_result(&mut self, result: TaskResult, done: bool, file: Option<File>) {
                match result {
                    $(TaskResult::$kind(result) => result.store(self, done, file),)*
                }
            }

            /// Returns what a job does, in words, if the user would miss it.
            pub(super) fn lost_work(&self, kind: JobKind) -> Option<String> {
                match kind {
                    $(JobKind::$kind => <$result as TaskSlot>::lost_work(self),)*
                    _ => None,
                }
            }
        }
    };
}

tasks!(slots);

impl PageModel {
    /// Stops the state of a task whose job is over, unless its result has arrived.
    pub(crate) fn stop_task(&mut self, kind: JobKind) {
        if let Some(task) = self.task(kind) {
            task.stop();
        }
    }

    /// Returns whether the task of a kind is running.
    pub(crate) fn is_task_running(&self, kind: JobKind) -> bool {
        self.clone().task(kind).is_some_and(|task| task.is_running())
    }

    /// Returns the error of the task of a kind, if it failed.
    pub(crate) fn task_error(&self, kind: JobKind) -> Option<Rc<ErrorText>> {
        self.clone().task(kind)?.error().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::FromWorker;
    use crate::protocol::job::JobEnd;
    use crate::state::task::Task;

    #[test]
    fn tasks_that_end_without_a_result_stop() {
        let mut model = PageModel::default();
        model.verification.task = Task::started();
        model.values_panel.scan = Task::started();
        assert!(model.is_task_running(JobKind::Verify));
        model.handle_reply(FromWorker::Ended(JobKind::Verify, JobEnd::Completed), None);
        assert!(!model.is_task_running(JobKind::Verify));
        assert!(model.is_task_running(JobKind::Scan), "another task");
        let scanned = Box::default();
        model.handle_reply(FromWorker::Done(TaskResult::Scan(scanned)), None);
        model.handle_reply(FromWorker::Ended(JobKind::Scan, JobEnd::Completed), None);
        assert!(matches!(model.values_panel.scan, Task::Done(_)), "its result arrived");
    }

    #[test]
    fn jobs_that_users_would_miss_have_words() {
        let mut model = PageModel::default();
        let jobs = [JobKind::Scan, JobKind::Inspect, JobKind::Rank, JobKind::Compare];
        let words: Vec<String> = jobs.iter().filter_map(|kind| model.lost_work(*kind)).collect();
        assert_eq!(words, ["scanning the values of ", "comparing "]);
        model.interrupt(&jobs, false);
        let notice = model.notice.unwrap_or_default();
        assert!(notice.ends_with("were stopped because the file was closed."), "{notice}");
    }
}
