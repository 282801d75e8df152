//! How the page keeps the results of reading a matrix, and of exporting it.

use web_sys::File;

use crate::matrix::message::ranked::NormRanking;
use crate::matrix::message::singular::SingularReport;
use crate::matrix::message::{ExportedFile, PackedOverview};
use crate::page::model::PageModel;
use crate::page::model::tasks::TaskSlot;
use crate::protocol::task::JobProgress;
use crate::state::task::TaskState;

impl TaskSlot for PackedOverview {
    fn task(model: &mut PageModel) -> Option<&mut dyn TaskState> {
        Some(&mut model.matrix.as_mut()?.overview)
    }

    fn store(self: Box<Self>, model: &mut PageModel, done: bool, _: Option<File>) {
        if let Some(matrix) = &mut model.matrix {
            matrix.set_overview(&self, done);
        }
    }

    fn note_progress(model: &mut PageModel, now: &JobProgress) {
        if let Some(matrix) = &mut model.matrix {
            matrix.read = (now.done, now.total);
        }
    }
}

impl TaskSlot for SingularReport {
    fn task(model: &mut PageModel) -> Option<&mut dyn TaskState> {
        Some(&mut model.matrix.as_mut()?.singular.task)
    }

    fn store(self: Box<Self>, model: &mut PageModel, done: bool, _: Option<File>) {
        if let Some(matrix) = &mut model.matrix {
            matrix.singular.task.set(self, done);
        }
    }
}

impl TaskSlot for NormRanking {
    fn task(model: &mut PageModel) -> Option<&mut dyn TaskState> {
        Some(&mut model.matrix.as_mut()?.ranked)
    }

    fn store(self: Box<Self>, model: &mut PageModel, done: bool, _: Option<File>) {
        if let Some(matrix) = &mut model.matrix {
            matrix.ranked.set(self, done);
        }
    }
}

impl TaskSlot for ExportedFile {
    fn task(model: &mut PageModel) -> Option<&mut dyn TaskState> {
        Some(&mut model.values_panel.export)
    }

    fn store(self: Box<Self>, model: &mut PageModel, done: bool, _: Option<File>) {
        model.values_panel.export.set(self, done);
    }
}
