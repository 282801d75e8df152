//! Handling of the Escape key.

use wasm_bindgen::JsCast;

use crate::convert::state::Conversion;
use crate::page::model::actor::Actor;
use crate::page::model::{PageModel, PendingAction, Screen, Sheet, StopReason};
use crate::protocol::job::JobKind;
use crate::{compare, run_folder};

/// Closes the topmost element: a sheet, the filter, a file that is being opened. Returns whether
/// there was one.
pub fn escape(model: &PageModel, actor: &Actor, target: Option<&web_sys::Element>) -> bool {
    if model.pending.is_some() {
        actor.confirm(None);
        return true;
    }
    if model.sheet.is_some() {
        let running = model.convert.as_ref().is_some_and(Conversion::is_running);
        if model.sheet == Some(Sheet::Convert) && running {
            // Asks first: one key press should not discard minutes of work.
            let stop = |actor: &Actor| actor.stop(JobKind::Write);
            actor.confirm(Some(PendingAction::new(StopReason::Stop, stop)));
            return true;
        }
        match model.sheet {
            Some(Sheet::Task(kind)) if model.is_task_running(kind) => actor.stop_task(kind),
            _ => actor.show(None),
        }
        return true;
    }
    match model.screen {
        Screen::Loading => actor.stop_opening(),
        Screen::Error => actor.update(|model| model.leave()),
        Screen::Compare => compare::page::escape(model, actor),
        Screen::Run => run_folder::page::escape(model, actor),
        Screen::Work if model.matrix.is_some() => match target {
            // Leaving the input gives the arrow keys back to the heatmap.
            Some(target) if target.tag_name() == "INPUT" => {
                if let Some(input) = target.dyn_ref::<web_sys::HtmlElement>() {
                    let _ = input.blur();
                }
            }
            _ => actor.expand(false),
        },
        Screen::Work if target.is_some_and(|target| target.id() == "go-to") => {
            if let Some(input) = target.and_then(|target| target.dyn_ref::<web_sys::HtmlElement>())
            {
                let _ = input.blur();
            }
        }
        Screen::Work if model.treemap.is_some() => {
            if let Some(view) = &model.treemap {
                actor.leave_treemap(view);
            }
        }
        Screen::Work if model.work.as_ref().is_some_and(|work| work.picked.count() > 0) => {
            actor.work(|work| work.picked.clear());
        }
        Screen::Work => {
            let clear = model.work.as_ref().is_none_or(|work| work.filter.is_empty());
            if model.run.is_some() && clear && !model.tree_shown {
                actor.leave();
                return true;
            }
            if model.tree_shown {
                actor.update(|model| model.tree_shown = !model.tree_shown);
            }
            actor.work(|work| work.set_filter(""));
            if let Some(input) = target.and_then(|target| target.dyn_ref::<web_sys::HtmlElement>())
            {
                let _ = input.blur();
            }
        }
        Screen::Start => return false,
    }
    true
}
