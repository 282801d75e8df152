//! Files that arrive by drops and dialogs: the hints shown while dragging, and how the files are
//! handled.

use wasm_bindgen::JsCast;
use wasm_bindgen_futures::spawn_local;
use web_sys::{DragEvent, Event};
use yew::prelude::*;

use crate::page::drop::{self, DroppedFile};
use crate::page::hooks::use_window_event;
use crate::page::marks::{classes, when};
use crate::page::model::actor::Actor;
use crate::page::model::{PageModel, Sheet};
use crate::protocol::error::{ErrorKind, ErrorText};
use crate::protocol::job::JobKind;
use crate::{compare, family, run_folder, verify};

/// Handles items that are dragged over the window and dropped on it.
#[hook]
pub fn use_drops(model: &UseReducerHandle<PageModel>, actor: &Actor) {
    let dragged = {
        let model = model.clone();
        actor.on(move |actor, event: Event| {
            let Some(transfer) = event.dyn_ref::<DragEvent>().and_then(DragEvent::data_transfer)
            else {
                return;
            };
            if drop::has_files(&transfer) {
                event.prevent_default();
                transfer.set_drop_effect("copy");
                let count = drop::count(&transfer);
                if model.dragged != Some(count) {
                    actor.update(move |model| model.dragged = Some(count));
                }
                let over_compare = on_right(&event);
                if model.over_compare != over_compare {
                    actor.update(move |model| model.over_compare = over_compare);
                }
            }
        })
    };
    use_window_event("dragenter", dragged.clone());
    use_window_event("dragover", dragged);
    let leave = {
        let model = model.clone();
        actor.on(move |actor, event: Event| {
            // Without a related target, the pointer left the window and not just an element.
            let outside =
                event.dyn_ref::<DragEvent>().is_some_and(|drag| drag.related_target().is_none());
            if outside && model.dragged.is_some() {
                actor.update(move |model| model.dragged = None);
            }
        })
    };
    use_window_event("dragleave", leave);
    let dropped = {
        let model = model.clone();
        actor.on(move |actor, event: Event| {
            let Some(transfer) = event.dyn_ref::<DragEvent>().and_then(DragEvent::data_transfer)
            else {
                return;
            };
            if drop::has_files(&transfer) {
                event.prevent_default();
                let files = drop::from_drop(&transfer);
                let over_compare = compare::page::can_compare(&model)
                    && model.sheet != Some(Sheet::Convert)
                    && on_right(&event);
                let (model, actor) = (model.clone(), actor.clone());
                spawn_local(async move {
                    let files = match files.await {
                        Ok(files) => files,
                        Err(name) => return empty_drop(&actor, name),
                    };
                    if over_compare && !model.joins(&files) {
                        compare::page::compare_with(&actor, files, None);
                    } else {
                        handle_files(&model, &actor, files);
                    }
                });
            }
        })
    };
    use_window_event("drop", dropped);
}

/// Shows an error: the drop contains no files.
fn empty_drop(actor: &Actor, name: String) {
    actor.update(move |model| model.dragged = None);
    actor.fail(ErrorText {
        kind: ErrorKind::Io,
        title: "The dropped items contain no files.".into(),
        text: "The folder is empty, or the browser may not read it.".into(),
        file: name,
        offset: None,
        lines: Vec::new(),
        next: vec![("Use \u{201c}Open folder\u{201d} on the first screen.".into(), String::new())],
    });
}

/// Returns whether the pointer is in the right half of the window.
fn on_right(event: &Event) -> bool {
    let width = web_sys::window().and_then(|window| window.inner_width().ok()?.as_f64());
    let at = event.dyn_ref::<DragEvent>().map_or(0, |drag| drag.client_x());
    f64::from(at) > width.unwrap_or(f64::MAX) / 2.0
}

/// Handles dropped or chosen files. Files that belong to the open checkpoint are added to it,
/// anything else replaces it. The verify and convert sheets take theirs first.
pub fn handle_files(model: &PageModel, actor: &Actor, dropped: Vec<DroppedFile>) {
    if verify::page::accept_manifest(model, actor, &dropped)
        || family::page::accept_files(model, actor, &dropped)
    {
        return;
    }
    if model.joins(&dropped) {
        let mut all = model.files.as_ref().clone();
        for mut file in dropped {
            if let Some(path) = model.missing(&file.name.path) {
                file.name.path = path.to_owned();
            }
            // A file of the same path replaces the old one, since it may have changed.
            match all.iter_mut().find(|existing| existing.name.path == file.name.path) {
                Some(existing) => *existing = file,
                None => all.push(file),
            }
        }
        actor.open(all, model.requested);
    } else {
        open_files(actor, dropped);
    }
}

/// Opens files: as a run if they are the folder of one.
pub fn open_files(actor: &Actor, files: Vec<DroppedFile>) {
    if let Err(files) = run_folder::page::open_run_folder(actor, files) {
        actor.open(files, None);
    }
}

/// Opens the members of a dropped archive as if they had been dropped.
#[hook]
pub fn use_archive(model: &UseReducerHandle<PageModel>, actor: &Actor) {
    let (model, actor) = (model.clone(), actor.clone());
    use_effect_with(model.archive.clone(), move |archive| {
        let Some(archive) = archive else { return };
        let (at, members) = &**archive;
        actor.update(|model| model.archive = None);
        if let Some(archive) = model.files.get(*at as usize) {
            let files = members.iter().filter_map(|member| drop::member(archive, member));
            handle_files(&model, &actor, files.collect());
        }
    });
}

/// Returns the hint shown while items are dragged over the page.
pub fn drag_hint(dragged: Option<usize>) -> String {
    match dragged {
        Some(0) | None => "Release to open.".into(),
        Some(1) => "Release to open 1 item.".into(),
        Some(count) => format!("Release to open {count} items."),
    }
}

/// Renders what a drop would do. If a checkpoint is open, dropping on the right half compares.
pub fn drop_overlay(model: &PageModel) -> Html {
    let converting = model.sheet == Some(Sheet::Convert);
    let halves = model.work.as_ref().filter(|_| compare::page::can_compare(model) && !converting);
    let Some(work) = halves else {
        let text = match model.sheet {
            Some(Sheet::Convert) => {
                "Release to use it as the config or recipe, or to open it.".to_owned()
            }
            Some(Sheet::Task(JobKind::Verify)) => "Release to use it as the manifest.".to_owned(),
            _ => drag_hint(model.dragged),
        };
        return html! { <div class="dropover"><b>{ text }</b></div> };
    };
    let half = |over_compare: bool| classes(&[when(over_compare == model.over_compare, "on")]);
    html! {
        <div class="dropover halves">
            <div class={half(false)}><b>{ drag_hint(model.dragged) }</b><span>{ "It replaces the open checkpoint." }</span></div>
            <div class={half(true)}><b>{ "Release to compare." }</b><span>{ format!("It is compared with {}.", work.opened.name) }</span></div>
        </div>
    }
}
