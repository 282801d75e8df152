//! Comparing two checkpoints: the screen, its state, and how it is opened.

mod choose;
mod detail;
mod layers;
mod load_check;
mod matching;
mod names;
mod renames;
mod screen;
mod summary;
mod table;
mod task;
mod tensor_diff;

use std::rc::Rc;

use yew::prelude::*;

pub use choose::ChooseComparedDialog;
pub use names::{SideName, distinct_names};
pub use screen::CompareScreen;

use crate::compare::message::CompareRequest;
use crate::compare::model::ComparisonState;
use crate::page::drop::DroppedFile;
use crate::page::hooks::ByAddress;
use crate::page::marks::copy;
use crate::page::model::actor::Actor;
use crate::page::model::{PageModel, Screen, Sheet, Tab};
pub use crate::page::pair::{begin_pair, compare_with};
use crate::protocol::ToWorker;
use crate::protocol::job::JobKind;
use crate::protocol::task::TaskRequest;

/// Swaps the sides: opens the second checkpoint and compares it with the first.
pub fn swap(model: &PageModel, actor: &Actor) {
    let Some(compare) = model.compare.as_ref().filter(|compare| compare.opened.is_some()) else {
        return;
    };
    if let Some((a, b)) = compare.picked {
        return compare_rows(actor, b, a);
    }
    // A remote checkpoint can't be the second side.
    if model.files.is_empty() {
        return;
    }
    let first = (compare.files.as_ref().clone(), compare.main);
    begin_pair(actor, first, (model.files.as_ref().clone(), model.requested));
}

/// Compares two rows of the open checkpoint with each other.
pub fn compare_rows(actor: &Actor, a: u32, b: u32) {
    actor.request(&ToWorker::Compare(CompareRequest::Picked(a, b)));
    actor.update(move |model| model.compare_rows(a, b));
}

/// Returns whether the open checkpoint can be compared with a second one. A summary has no values,
/// and a file dropped on the verify sheet is a manifest.
pub fn can_compare(model: &PageModel) -> bool {
    model.sheet != Some(Sheet::Task(JobKind::Verify))
        && model.work.as_ref().is_some_and(|work| !work.opened.summary)
}

/// Closes the comparison and goes back to the open checkpoint.
pub fn leave(actor: &Actor) {
    if actor.bridge.is_running(JobKind::Open) {
        return actor.stop_opening();
    }
    actor.request(&ToWorker::Compare(CompareRequest::Close));
    actor.update(|model| model.leave());
}

/// Lets the user choose a second checkpoint: in a dialog with the other checkpoints of the drop, if
/// there are any, else in a file dialog.
pub fn offer(model: &PageModel, actor: &Actor) {
    match &model.work {
        Some(work) if can_compare(model) && work.opened.others.is_empty() => {
            actor.choose_compared(false);
        }
        Some(_) if can_compare(model) => actor.show(Some(Sheet::ChooseCompared)),
        _ => {}
    }
}

impl Actor {
    /// Changes the comparison.
    pub fn compare(&self, change: impl FnOnce(&mut ComparisonState) + 'static) {
        self.update(|model| {
            if let Some(compare) = &mut model.compare {
                change(Rc::make_mut(compare));
            }
        });
    }
}

/// Requests the comparison, and the check whether it would load, whenever their options change.
#[hook]
pub fn use_compare(model: &PageModel, actor: &Actor) {
    let requested =
        model.compare.as_ref().filter(|compare| compare.request > 0).map(|compare| {
            (ByAddress(compare.rows.clone()), compare.options.clone(), compare.request)
        });
    let sender = actor.clone();
    use_effect_with(requested, move |requested| {
        if let Some((_, options, _)) = requested {
            sender.start(TaskRequest::Compare(Box::new((**options).clone())));
        }
    });
    let requested = model
        .compare
        .as_ref()
        .filter(|compare| compare.opened.is_some() || compare.listed.is_some())
        .filter(|compare| compare.picked.is_none())
        .map(|compare| (ByAddress(compare.rows.clone()), compare.strict, compare.release.clone()));
    let sender = actor.clone();
    use_effect_with(requested, move |requested| {
        if let Some((_, strict, release)) = requested.clone() {
            sender.request(&ToWorker::Compare(CompareRequest::Check { strict, release }));
        }
    });
}

/// Compares a model with its GGUF file if exactly these two checkpoints were dropped.
#[hook]
pub fn use_quantised_pair(model: &PageModel, actor: &Actor) {
    let done = use_mut_ref(Vec::<(String, u64)>::new);
    let is_open = model.screen == Screen::Work && model.compare.is_none();
    let pair = model.rail.as_ref().filter(|_| is_open).and_then(|rail| {
        let [one, other] = rail.entries.as_slice() else { return None };
        let is_gguf = |name: &str| name.to_lowercase().ends_with(".gguf");
        match (is_gguf(&one.name), is_gguf(&other.name)) {
            (false, true) => Some((one.main, other.main)),
            (true, false) => Some((other.main, one.main)),
            _ => None,
        }
    });
    let (files, opened) = (model.files.clone(), model.requested);
    let actor = actor.clone();
    use_effect_with(pair, move |pair| {
        let Some((original, quantised)) = *pair else { return };
        let names = files.iter().map(|file| (file.name.path.clone(), file.name.size));
        let names: Vec<(String, u64)> = names.collect();
        if done.replace(names.clone()) == names {
            return;
        }
        let files = files.as_ref().clone();
        match opened == Some(original) {
            true => compare_with(&actor, files, Some(quantised)),
            false => begin_pair(&actor, (files.clone(), Some(original)), (files, Some(quantised))),
        }
    });
}

/// Handles a key on the comparison screen. Returns whether the key was used.
pub fn press(model: &PageModel, actor: &Actor, key: &str, tag: &str, inside: bool) -> bool {
    let Some(compare) = &model.compare else { return false };
    match key {
        "j" => actor.compare(|compare| compare.step(1)),
        "k" => actor.compare(|compare| compare.step(-1)),
        "ArrowDown" if !inside => actor.compare(|compare| compare.step(1)),
        "ArrowUp" if !inside => actor.compare(|compare| compare.step(-1)),
        "PageDown" if !inside => actor.compare(|compare| compare.step(20)),
        "PageUp" if !inside => actor.compare(|compare| compare.step(-20)),
        "Home" if !inside => actor.compare(|compare| compare.step(isize::MIN)),
        "End" if !inside => actor.compare(|compare| compare.step(isize::MAX)),
        "Enter" if !inside && tag != "BUTTON" && tag != "A" => actor.tab(Tab::Tensor),
        "," => actor.compare(|compare| compare.step_member(-1)),
        "." => actor.compare(|compare| compare.step_member(1)),
        "l" => actor.compare(|compare| compare.show(|view| view.fold = !view.fold)),
        "e" => actor.compare(|compare| compare.show(|view| view.hide_equal = !view.hide_equal)),
        "m" => actor.compare(|compare| compare.matching = !compare.matching),
        "x" => swap(model, actor),
        "d" => offer(model, actor),
        "/" => return crate::page::focus::focus_filter(),
        "y" => match (&compare.pairs, compare.pair()) {
            (Some(pairs), Some(pair)) => match pairs.row(&pair) {
                Some(row) => copy(&row.key),
                None => return false,
            },
            _ => return false,
        },
        _ => return false,
    }
    true
}

/// Handles Escape on the comparison screen: hides the options, else clears the filter, else stops
/// reading, else leaves.
pub fn escape(model: &PageModel, actor: &Actor) {
    let Some(compare) = &model.compare else { return leave(actor) };
    if compare.matching {
        actor.compare(|compare| compare.matching = false);
    } else if !compare.view.filter.is_empty() || compare.view.only.is_some() {
        actor.compare(|compare| {
            compare.show(|view| {
                view.filter.clear();
                view.only = None;
            });
        });
    } else if compare.is_reading() && compare.opened.is_some() {
        actor.stop(JobKind::Compare);
    } else {
        leave(actor);
    }
}

impl PageModel {
    /// Begins a comparison and shows its screen at once.
    pub(crate) fn begin_comparison(&mut self, files: Vec<DroppedFile>, main: Option<u32>) {
        self.dragged = None;
        self.sheet = None;
        self.tab = Tab::Keys;
        let mut compare = ComparisonState::new(files, main);
        if let Some(work) = &self.work {
            compare.view.filter = work.picked.filter(&work.rows);
        }
        if self.screen == Screen::Loading {
            // The first side is still being opened, so the previous checkpoint must not be shown.
            self.work = None;
        }
        self.compare = Some(Rc::new(compare));
        self.screen = Screen::Compare;
    }

    /// Begins a comparison of two rows of the open checkpoint.
    pub(crate) fn compare_rows(&mut self, a: u32, b: u32) {
        let Some(work) = &self.work else { return };
        self.compare = Some(Rc::new(ComparisonState::of_rows(work, a, b)));
        (self.tab, self.screen) = (Tab::Keys, Screen::Compare);
    }

    /// Changes the comparison, if it and the open checkpoint are still open.
    pub(crate) fn change_comparison(&mut self, change: impl FnOnce(&mut ComparisonState)) {
        if let (Some(compare), Some(_)) = (&mut self.compare, &self.work) {
            change(Rc::make_mut(compare));
        }
    }
}
