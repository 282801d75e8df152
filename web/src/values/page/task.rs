//! How the page keeps the results of reading values.

use std::rc::Rc;

use web_sys::File;

use crate::page::model::PageModel;
use crate::page::model::tasks::TaskSlot;
use crate::protocol::task::JobProgress;
use crate::state::task::TaskState;
use crate::values::message::{ScanReport, TensorValues};

impl TaskSlot for ScanReport {
    fn task(model: &mut PageModel) -> Option<&mut dyn TaskState> {
        Some(&mut model.values_panel.scan)
    }

    fn store(mut self: Box<Self>, model: &mut PageModel, done: bool, _: Option<File>) {
        if let Some(work) = &mut model.work {
            if done {
                work.set_value_findings(std::mem::take(&mut self.findings));
            }
            work.add_values(std::mem::take(&mut self.rows), done);
        }
        if done {
            // Verifying reads all values, too.
            model.values_panel.scan.start();
            model.values_panel.scan.set(self, true);
        }
    }

    fn note_progress(model: &mut PageModel, now: &JobProgress) {
        if model.values_panel.scan.is_running() && now.millis > 500.0 {
            model.values_panel.rate = Some(now.done as f64 / now.millis);
        }
    }

    fn lost_work(model: &PageModel) -> Option<String> {
        Some(format!("scanning the values of {}", model.open_name()))
    }
}

impl TaskSlot for TensorValues {
    fn task(model: &mut PageModel) -> Option<&mut dyn TaskState> {
        Some(&mut model.values_panel.one.as_mut()?.1)
    }

    fn store(self: Box<Self>, model: &mut PageModel, done: bool, _: Option<File>) {
        let panel = &mut model.values_panel;
        if !done {
            if let Some((_, one)) = &mut panel.one {
                one.set(self, false);
            }
            return;
        }
        if self.millis > 50.0 {
            panel.rate = Some(self.bytes as f64 / self.millis);
        }
        panel.one = None;
        if let Some(work) = model.work.as_mut().filter(|work| work.view.weights.any()) {
            work.add_values(vec![(self.row, (&self.measured.statistics).into())], true);
        }
        if let Some(inspected) = model.inspected.as_mut().filter(|it| it.row == self.row) {
            let inspected = Rc::make_mut(inspected);
            (inspected.values, inspected.unread) = (Some(self), None);
        }
    }
}
