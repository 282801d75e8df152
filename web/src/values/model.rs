//! The page's state of reading the values of tensors.

use std::rc::Rc;

use web_sys::File;

use crate::matrix::message::ExportedFile;
use crate::page::model::PageModel;
use crate::page::model::tasks::TaskSlot;
use crate::protocol::task::JobProgress;
use crate::state::task::{Task, TaskState};
use crate::values::message::{ScanReport, TensorValues};

/// Readings of values, running and completed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ValuesPanel {
    /// The scan of all tensors.
    pub scan: Task<ScanReport>,
    /// Whether the scan is being stopped.
    pub stopping: bool,
    /// The row of the tensor being read, and its statistics so far.
    pub one: Option<(u32, Task<TensorValues>)>,
    /// Bytes read per millisecond, once measured.
    pub rate: Option<f64>,
    /// The selected value: its row and its number.
    pub at: Option<(u32, u64)>,
    /// The slice shown of a row, in Python's notation, without the brackets.
    pub slice: Option<(u32, String)>,
    /// The export of a tensor as a file.
    pub export: Task<ExportedFile>,
}

impl ValuesPanel {
    /// Returns the slice of a row; empty for the whole tensor.
    pub fn slice_of(&self, row: u32) -> &str {
        self.slice.as_ref().filter(|(of, _)| *of == row).map_or("", |(_, slice)| slice)
    }
}

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
