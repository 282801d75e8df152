//! Applies the progress and the results of tasks to the page's state.

use std::rc::Rc;

use web_sys::File;

use crate::page::model::PageModel;
use crate::protocol::error::ErrorText;
use crate::protocol::job::JobKind;
use crate::protocol::task::{JobProgress, TaskResult};
use crate::state::task::TaskState;

impl PageModel {
    /// Returns the task of a kind; `None` if it is not shown any more.
    fn task(&mut self, kind: JobKind) -> Option<&mut dyn TaskState> {
        Some(match kind {
            JobKind::Write => &mut self.convert.as_mut()?.task,
            JobKind::Verify => &mut self.verification.task,
            JobKind::Scan => &mut self.values_panel.scan,
            JobKind::TensorStats => &mut self.values_panel.one.as_mut()?.1,
            JobKind::Export => &mut self.values_panel.export,
            JobKind::Overview => &mut self.matrix.as_mut()?.overview,
            JobKind::Singular => &mut self.matrix.as_mut()?.singular.task,
            JobKind::Rank => &mut self.matrix.as_mut()?.ranked,
            JobKind::Compare => &mut Rc::make_mut(self.compare.as_mut()?).reading,
            JobKind::Renames => &mut Rc::make_mut(self.compare.as_mut()?).renaming,
            JobKind::TensorDiff => {
                &mut Rc::make_mut(self.compare.as_mut()?).tensor_diff.as_mut()?.1
            }
            JobKind::RunValues => &mut Rc::make_mut(self.run.as_mut()?).values.task,
            _ => return None,
        })
    }

    pub(super) fn note_progress(&mut self, kind: JobKind, now: JobProgress) {
        let rate = Some(now.done as f64 / now.millis);
        match (kind, &mut self.run) {
            (JobKind::Scan, _) if self.values_panel.scan.is_running() && now.millis > 500.0 => {
                self.values_panel.rate = rate;
            }
            (JobKind::RunValues, Some(view)) if now.millis > 200.0 => {
                Rc::make_mut(view).values.rate = rate;
            }
            (JobKind::Overview, _) => {
                if let Some(matrix) = &mut self.matrix {
                    matrix.read = (now.done, now.total);
                }
            }
            _ => {}
        }
        if let Some(task) = self.task(kind) {
            task.progress(now);
        }
    }

    pub(super) fn end_task(&mut self, kind: JobKind, error: Option<ErrorText>) {
        if let (JobKind::Write, Some(convert)) = (kind, &mut self.convert) {
            convert.file = None;
            // An error before the start, such as that of a newer plan, is shown too.
            if error.is_some() {
                convert.task.start();
            }
        }
        match (self.task(kind), error) {
            (Some(task), Some(error)) => task.fail(error),
            (Some(task), None) => task.stop(),
            (None, _) => {}
        }
    }

    /// Stores the result of a task, or the result so far. A conversion's file comes with it.
    pub(super) fn set_result(&mut self, result: TaskResult, done: bool, file: Option<File>) {
        let compare = self.compare.as_mut().map(Rc::make_mut);
        match (result, &mut self.matrix, compare) {
            (TaskResult::Write(result), ..) => {
                if let Some(convert) = &mut self.convert {
                    convert.task.set(result, done);
                    convert.file = file;
                }
            }
            (TaskResult::Verify(report), ..) => self.verification.set(report, done),
            (TaskResult::Scan(report), ..) => {
                self.values_panel.set_scan(report, done, self.work.as_mut());
            }
            (TaskResult::Statistics(values), ..) => match (done, &mut self.values_panel.one) {
                (false, Some((_, one))) => one.set(values, false),
                (false, None) => {}
                (true, _) => {
                    let work = self.work.as_mut();
                    self.values_panel.set_statistics(values, work, &mut self.inspected);
                }
            },
            (TaskResult::Export(name), ..) => self.values_panel.export.set(name, done),
            (TaskResult::Overview(packed), Some(matrix), _) => matrix.set_overview(&packed, done),
            (TaskResult::Singular(report), Some(matrix), _) => {
                matrix.singular.task.set(report, done);
            }
            (TaskResult::Rank(ranking), Some(matrix), _) => matrix.ranked.set(ranking, done),
            (TaskResult::Compare(update), _, Some(compare)) => {
                if let Some(work) = &self.work {
                    compare.add_results(*update, done, &work.rows);
                }
            }
            (TaskResult::Renames(found), _, Some(compare)) => compare.renaming.set(found, done),
            (TaskResult::TensorDiff(diff), _, Some(compare)) => {
                if let Some((_, task)) = &mut compare.tensor_diff {
                    task.set(diff, done);
                }
            }
            (TaskResult::RunValues(files), ..) => {
                if let Some(view) = &mut self.run {
                    let view = Rc::make_mut(view);
                    files.into_iter().for_each(|values| view.add_values(values));
                    if done {
                        view.values.task.set((), true);
                    }
                }
            }
            // The matrix or the comparison is closed.
            _ => {}
        }
    }
}
