//! How the page keeps the result of a verification.

use web_sys::File;

use crate::page::model::PageModel;
use crate::page::model::tasks::TaskSlot;
use crate::page::stored::store_rate;
use crate::state::task::{Task, TaskState};
use crate::verify::message::VerifyReport;

impl TaskSlot for VerifyReport {
    fn task(model: &mut PageModel) -> Option<&mut dyn TaskState> {
        Some(&mut model.verification.task)
    }

    fn store(self: Box<Self>, model: &mut PageModel, done: bool, _: Option<File>) {
        model.verification.task.set(self, done);
        // A shorter run is not a reliable estimate of the speed.
        if let Task::Done(verified) = &model.verification.task
            && verified.millis > 300.0
        {
            store_rate(verified.bytes as f64 / verified.millis);
        }
    }

    fn lost_work(model: &PageModel) -> Option<String> {
        Some(format!("reading all of {}", model.open_name()))
    }
}
