//! How the page keeps the results of comparing.

use std::rc::Rc;

use web_sys::File;

use crate::compare::message::ComparisonUpdate;
use crate::compare::message::tensor_diff::{Renames, TensorDiff};
use crate::page::model::PageModel;
use crate::page::model::tasks::TaskSlot;
use crate::state::task::TaskState;

impl TaskSlot for ComparisonUpdate {
    fn task(model: &mut PageModel) -> Option<&mut dyn TaskState> {
        Some(&mut Rc::make_mut(model.compare.as_mut()?).reading)
    }

    fn store(self: Box<Self>, model: &mut PageModel, done: bool, _: Option<File>) {
        if let (Some(compare), Some(work)) = (&mut model.compare, &model.work) {
            Rc::make_mut(compare).add_results(*self, done, &work.rows);
        }
    }

    fn lost_work(model: &PageModel) -> Option<String> {
        Some(format!("comparing {}", model.open_name()))
    }
}

impl TaskSlot for TensorDiff {
    fn task(model: &mut PageModel) -> Option<&mut dyn TaskState> {
        Some(&mut Rc::make_mut(model.compare.as_mut()?).tensor_diff.as_mut()?.1)
    }

    fn store(self: Box<Self>, model: &mut PageModel, done: bool, _: Option<File>) {
        let compare = model.compare.as_mut().map(Rc::make_mut);
        if let Some((_, task)) = compare.and_then(|compare| compare.tensor_diff.as_mut()) {
            task.set(self, done);
        }
    }
}

impl TaskSlot for Renames {
    fn task(model: &mut PageModel) -> Option<&mut dyn TaskState> {
        Some(&mut Rc::make_mut(model.compare.as_mut()?).renaming)
    }

    fn store(self: Box<Self>, model: &mut PageModel, done: bool, _: Option<File>) {
        if let Some(compare) = &mut model.compare {
            Rc::make_mut(compare).renaming.set(self, done);
        }
    }
}
