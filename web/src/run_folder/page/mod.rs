//! A run folder: the screen, its state, and how it is opened.

mod axis;
mod details;
mod screen;
mod task;
mod timeline;
mod values;
mod words;

use std::rc::Rc;

use statelens_compare::runs::{INDEX, KEPT, LATEST_FILES, MAX_KEPT, MAX_LATEST, named_latest};
use wasm_bindgen::{JsCast as _, JsValue};
use wasm_bindgen_futures::{JsFuture, spawn_local};
use yew::prelude::*;

pub use screen::RunScreen;

use crate::compare;
use crate::open::message::FileName;
use crate::page::drop::{self, DroppedFile};
use crate::page::marks::copy;
use crate::page::model::actor::Actor;
use crate::page::model::{PageModel, Screen};
use crate::protocol::ToWorker;
use crate::run_folder::model::RunView;
use crate::run_folder::state::{find, place_of, sort};
use crate::state::task::Task;

/// Shows the run folder found among dropped files. Returns the files in `Err` if there is no run
/// folder.
pub fn open_run_folder(actor: &Actor, files: Vec<DroppedFile>) -> Result<(), Vec<DroppedFile>> {
    let names: Vec<FileName> = files.iter().map(|dropped| dropped.name.clone()).collect();
    let Some(folder) = find(&names) else { return Err(files) };
    let actor = actor.clone();
    spawn_local(async move {
        let of = async |name, most| match files.get(place_of(name, &names, &folder)?) {
            Some(file) => Some(text(file, most).await),
            None => None,
        };
        let (index, kept) = (of(INDEX, MAX_KEPT).await, of(KEPT, MAX_KEPT).await);
        let mut latest = None;
        for name in LATEST_FILES {
            if let Some(Ok(text)) = of(name, MAX_LATEST).await {
                latest = latest.or_else(|| named_latest(name, &text));
            }
        }
        let sorted = sort(&names, &folder, index, latest);
        let mut view = RunView::new(folder.name, files, sorted);
        if let Some(kept) = kept {
            view.load_values(kept);
        }
        actor.replace_open(move |actor| {
            actor.interrupt(true);
            let view = view.clone();
            actor.update(move |model| model.open_run(view));
        });
    });
    Ok(())
}

/// Reads a text file of at most `most` bytes next to the checkpoints.
async fn text(dropped: &DroppedFile, most: u64) -> Result<String, String> {
    if dropped.name.size > most {
        return Err("it is too long".into());
    }
    let text = match &dropped.address {
        Some(address) => fetched_text(address).await,
        None => JsFuture::from(dropped.file.text()).await,
    };
    match text {
        Ok(text) => Ok(text.as_string().unwrap_or_default()),
        Err(_) => Err("it can\u{2019}t be read: it was changed, moved or removed".into()),
    }
}

/// Fetches a text file that the command serves.
async fn fetched_text(address: &str) -> Result<JsValue, JsValue> {
    let window = web_sys::window().ok_or(JsValue::UNDEFINED)?;
    let response = JsFuture::from(window.fetch_with_str(address)).await?;
    let response: web_sys::Response = response.dyn_into()?;
    if !response.ok() {
        return Err(JsValue::UNDEFINED);
    }
    JsFuture::from(response.text()?).await
}

/// Opens the selected checkpoint, together with the other files of the folder. Returns false if it
/// can't be opened.
pub fn open(view: &RunView, actor: &Actor) -> bool {
    let Some(row) = view.row().filter(|_| view.can_open()) else { return false };
    actor.open(view.files.as_ref().clone(), Some(row.file as u32));
    true
}

/// Selects a row and opens its checkpoint.
pub fn open_row(view: &RunView, actor: &Actor, row: usize) {
    actor.run_folder(move |view| view.select(row));
    if let Some(row) = view.sorted.rows.get(row) {
        actor.open(view.files.as_ref().clone(), Some(row.file as u32));
    }
}

/// Compares the selected checkpoint with the marked one. Marks it if none is marked, and removes
/// the mark if it is the marked one itself.
pub fn compare_two(view: &RunView, actor: &Actor) -> bool {
    let Some(row) = view.row().filter(|_| view.can_open()) else { return false };
    match view.marked.and_then(|at| view.sorted.rows.get(at)) {
        Some(first) if view.marked != Some(view.at) => {
            let of = |file: usize| (view.files.as_ref().clone(), Some(file as u32));
            compare::page::begin_pair(actor, of(first.file), of(row.file));
        }
        Some(_) => actor.run_folder(|view| view.marked = None),
        None => actor.run_folder(|view| view.marked = Some(view.at)),
    }
    true
}

impl Actor {
    /// Changes the state of the run folder.
    pub fn run_folder(&self, change: impl FnOnce(&mut RunView) + 'static) {
        self.update(|model| {
            if let Some(run) = &mut model.run {
                change(Rc::make_mut(run));
            }
        });
    }
}

/// Lets the worker check the files of a run while its folder is shown.
#[hook]
pub fn use_run(model: &PageModel, actor: &Actor) {
    let shown = model.run.clone().filter(|_| model.screen == Screen::Run);
    let actor = actor.clone();
    let key = shown.as_ref().map(|view| crate::page::hooks::ByAddress(view.files.clone()));
    use_effect_with(key, move |_| {
        let Some(view) = shown else { return };
        let requested = view.unchecked();
        if requested.is_empty() {
            return;
        }
        let handles = drop::handles(&view.files);
        let files = view.files.iter().map(|dropped| dropped.name.clone()).collect();
        let check = ToWorker::CheckRun { files, requested };
        actor.bridge.post_with(&check, &handles, &JsValue::UNDEFINED);
    });
}

/// Handles a key while a run folder is shown. Returns whether the key was used.
pub fn press(model: &PageModel, actor: &Actor, key: &str, tag: &str, inside: bool) -> bool {
    let Some(view) = &model.run else { return false };
    match key {
        "j" => actor.run_folder(|view| view.step(1)),
        "k" => actor.run_folder(|view| view.step(-1)),
        "ArrowDown" if !inside => actor.run_folder(|view| view.step(1)),
        "ArrowUp" if !inside => actor.run_folder(|view| view.step(-1)),
        "PageDown" if !inside => actor.run_folder(|view| view.step(20)),
        "PageUp" if !inside => actor.run_folder(|view| view.step(-20)),
        "Home" if !inside => actor.run_folder(|view| view.step(isize::MIN)),
        "End" if !inside => actor.run_folder(|view| view.step(isize::MAX)),
        "Enter" if !inside && tag != "BUTTON" && tag != "A" => return open(view, actor),
        "d" => return compare_two(view, actor),
        "y" => match view.entry() {
            Some(entry) => copy(&entry.name),
            None => return false,
        },
        _ => return false,
    }
    true
}

/// Handles Escape while a run folder is shown: removes the mark, or goes back to the start screen.
pub fn escape(model: &PageModel, actor: &Actor) {
    match &model.run {
        Some(view) if view.marked.is_some() => actor.run_folder(|view| view.marked = None),
        _ => actor.update(|model| model.leave()),
    }
}

impl PageModel {
    /// Shows a run folder.
    pub(crate) fn open_run(&mut self, mut view: RunView) {
        // On return to a folder, an earlier read of its values is no longer running.
        view.values.task.stop();
        self.dragged = None;
        self.sheet = None;
        self.work = None;
        (self.compare, self.folder_check) = (None, Task::Idle);
        (self.address, self.fetched) = (None, None);
        self.reset();
        self.error = None;
        self.run = Some(Rc::new(view));
        self.screen = Screen::Run;
    }

    /// Returns whether these are the files of the run folder, so that it is kept when one is
    /// opened.
    pub(crate) fn is_of_run(&self, files: &[DroppedFile]) -> bool {
        self.run.as_ref().is_some_and(|view| *view.files == *files)
    }
}
