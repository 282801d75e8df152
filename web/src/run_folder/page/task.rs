//! How the page keeps the values of a run.

use std::rc::Rc;

use web_sys::File;

use crate::page::model::PageModel;
use crate::page::model::tasks::TaskSlot;
use crate::protocol::task::JobProgress;
use crate::run_folder::message::RunValues;
use crate::state::task::TaskState;

impl TaskSlot for RunValues {
    fn task(model: &mut PageModel) -> Option<&mut dyn TaskState> {
        Some(&mut Rc::make_mut(model.run.as_mut()?).values.task)
    }

    fn store(self: Box<Self>, model: &mut PageModel, done: bool, _: Option<File>) {
        let Some(view) = &mut model.run else { return };
        let view = Rc::make_mut(view);
        self.into_iter().for_each(|values| view.add_values(values));
        if done {
            view.values.task.set((), true);
        }
    }

    fn note_progress(model: &mut PageModel, now: &JobProgress) {
        if let Some(view) = model.run.as_mut().filter(|_| now.millis > 200.0) {
            Rc::make_mut(view).values.rate = Some(now.done as f64 / now.millis);
        }
    }

    fn lost_work(model: &PageModel) -> Option<String> {
        let folder = model.run.as_ref().map_or("", |view| &view.folder);
        Some(format!("scanning the values of {folder}"))
    }
}
