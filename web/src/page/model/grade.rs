//! Grades the open checkpoint, and passes the grade to the list of files and to the run table.

use std::rc::Rc;

use statelens_checkpoint::{Finding, Grade};
use statelens_describe::FileGrade;

use crate::page::model::PageModel;
use crate::state::task::Task;

impl PageModel {
    /// Returns the grade of the open checkpoint by all that was read of it, in this view and in that
    /// of its run.
    pub(crate) fn grade(&self) -> Option<FileGrade> {
        let work = self.work.as_ref()?;
        let (structure, _) = FileGrade::of_findings(&work.opened.findings);
        if work.opened.summary {
            // A link may leave the findings out, so it can't say that a file is whole.
            return (!structure.is_good()).then_some(structure);
        }
        let of_run = self.run.as_ref().and_then(|run| run.not_finite(work.opened.main));
        let grade = structure.with_values(work.not_finite().max(of_run.unwrap_or(0)));
        Some(match &self.verification.task {
            Task::Done(done) => grade.verified(done.report.answer(false)),
            _ => grade,
        })
    }

    /// Passes the grade of the open checkpoint to the list of files and to the run table.
    pub(crate) fn note_grade(&mut self) {
        let (Some(grade), Some(work)) = (self.grade(), &self.work) else { return };
        let main = work.opened.main;
        if let Some(rail) = &mut self.rail {
            let (_, worst) = FileGrade::of_findings(&work.opened.findings);
            let reason = worst.map(|found| found.title.clone()).unwrap_or_default();
            Rc::make_mut(rail).set_grade(main, Some(grade), reason);
        }
        // A scan that was stopped may have found less than there is.
        let is_known = self.values_panel.has_all_values() || work.not_finite() > 0;
        if let Some(run) = &mut self.run
            && is_known
        {
            Rc::make_mut(run).set_not_finite(main, work.not_finite());
        }
    }

    /// Adds a finding to a checkpoint that was just opened, if its run's view has found values that
    /// are not finite in it.
    pub(super) fn recall_values(&mut self) {
        let (Some(work), Some(run)) = (&mut self.work, &self.run) else { return };
        let main = work.opened.main;
        let Some(count) = run.not_finite(main).filter(|count| *count > 0) else { return };
        let values = if count == 1 { "value is" } else { "values are" };
        let title = format!("{} {values} NaN or infinite", statelens_checkpoint::grouped(count));
        let groups = run.not_finite_groups(main).join(", ");
        let finding = Finding::new(Grade::Warning, title)
            .detail(format!("The view of the run found them, in: {groups}."))
            .advice("Scan the values to see in which tensors they are.");
        Rc::make_mut(&mut work.opened).findings.push(finding);
    }
}
