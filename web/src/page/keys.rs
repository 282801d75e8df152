//! Keyboard shortcuts that apply when no focused element handles the key.

use wasm_bindgen::JsCast;
use web_sys::{Event, KeyboardEvent};
use yew::prelude::*;

use crate::page::embed::is_embedded;
use crate::page::escape::escape;
use crate::page::focus::{focus, focus_filter};
use crate::page::hooks::use_window_event;
use crate::page::marks::copy;
use crate::page::model::actor::Actor;
use crate::page::model::{PageModel, Screen, Sheet};
use crate::protocol::job::JobKind;
use crate::state::fmt;
use crate::state::work::OpenWork;
use crate::{checkpoint_list, compare, matrix, run_folder, share, treemap};

/// Handles the window's key events.
#[hook]
pub fn use_keys(model: &UseReducerHandle<PageModel>, actor: &Actor) {
    let model = model.clone();
    let listen = actor.on(move |actor, event: Event| {
        if let Some(event) = event.dyn_ref::<KeyboardEvent>()
            && !event.default_prevented()
            && press(&model, actor, event)
        {
            event.prevent_default();
        }
    });
    use_window_event("keydown", listen);
}

/// Handles a key. Returns whether the key was used.
fn press(model: &PageModel, actor: &Actor, event: &KeyboardEvent) -> bool {
    let target = event.target().and_then(|target| target.dyn_into::<web_sys::Element>().ok());
    let tag = target.as_ref().map(|target| target.tag_name()).unwrap_or_default();
    let key = event.key();
    if key == "Escape" {
        return escape(model, actor, target.as_ref());
    }
    let command = event.ctrl_key() || event.meta_key();
    if command && key == "k" && has_palette(model) && model.pending.is_none() {
        match model.sheet {
            None => actor.show(Some(Sheet::Palette)),
            Some(Sheet::Palette) => actor.show(None),
            Some(_) => return false,
        }
        return true;
    }
    if matches!(tag.as_str(), "INPUT" | "SELECT" | "TEXTAREA") || event.alt_key() {
        return false;
    }
    if let Some(target) = &target
        && arrow_in_group(target, &key)
    {
        return true;
    }
    if model.pending.is_some() {
        return false;
    }
    if command {
        return match key.as_str() {
            "c" => copy_values(model),
            "a" => pick_all(model, actor),
            _ => false,
        };
    }
    match key.as_str() {
        "?" => actor.show(if model.sheet == Some(Sheet::Keys) { None } else { Some(Sheet::Keys) }),
        "Enter" if model.sheet == Some(Sheet::Share) && tag != "BUTTON" && tag != "A" => {
            return share::page::copy_link(model.shared.as_ref());
        }
        _ if model.sheet.is_some() => return false,
        "o" => actor.choose_files(),
        "O" => actor.choose_folder(),
        "u" => actor.show_address_prompt(AttrValue::default()),
        _ if matches!(model.screen, Screen::Compare | Screen::Run) => {
            let inside = target.as_ref().is_some_and(|node| {
                node.closest("[role=tablist], .insp, .matching").ok().flatten().is_some()
            });
            return match model.screen {
                Screen::Run => run_folder::page::press(model, actor, &key, &tag, inside),
                _ => compare::page::press(model, actor, &key, &tag, inside),
            };
        }
        "[" | "]" if matches!(model.screen, Screen::Work | Screen::Error) => {
            return checkpoint_list::page::step_file(model, actor, key == "]");
        }
        _ if model.screen != Screen::Work => return false,
        key if matrix::page::press(model, actor, key, event.shift_key()) => {}
        "g" if model.matrix.is_some() => return focus("go-to"),
        _ if model.matrix.is_some() => return false,
        "t" => return treemap::page::toggle(model, actor),
        "e" => match model.work.as_ref().and_then(OpenWork::row) {
            Some(_) => actor.expand(true),
            None => actor.update(|model| {
                model.notice = Some("Select a tensor first: E shows it as a heatmap.".into())
            }),
        },
        "d" => compare::page::offer(model, actor),
        "c" => actor.update(|model| model.start_convert()),
        "f" => actor.show(Some(Sheet::Findings)),
        "s" => actor.show(Some(Sheet::Share)),
        "v" if compare::page::can_compare(model) => actor.show(Some(Sheet::Task(JobKind::Verify))),
        "ArrowDown" | "ArrowUp" if event.shift_key() && is_table(target.as_ref()) => {
            let by = if key == "ArrowDown" { 1 } else { -1 };
            actor.work(move |work| work.extend_pick(by));
        }
        " " if is_table(target.as_ref()) && tag != "BUTTON" => actor.work(OpenWork::pick_selected),
        _ => return press_in_table(model, actor, &key, &tag, target.as_ref()),
    }
    true
}

/// Returns whether the palette has actions for the shown screen.
fn has_palette(model: &PageModel) -> bool {
    match model.screen {
        Screen::Work => true,
        Screen::Start | Screen::Run | Screen::Error => !is_embedded(),
        Screen::Compare | Screen::Loading => false,
    }
}

/// Picks all lines that match the filter.
fn pick_all(model: &PageModel, actor: &Actor) -> bool {
    let shown = model.screen == Screen::Work && model.matrix.is_none() && model.sheet.is_none();
    if shown {
        actor.work(|work| work.picked.all(&work.table));
    }
    shown
}

/// Returns whether keys go to the table, and not to the tree, tabs, tape or inspector, which handle
/// their own keys while focused.
fn is_table(target: Option<&web_sys::Element>) -> bool {
    target.is_none_or(|node| {
        let others = "[role=tree], [role=tablist], [role=slider], [role=listbox], .insp";
        node.closest(others).ok().flatten().is_none()
    })
}

fn press_in_table(
    model: &PageModel,
    actor: &Actor,
    key: &str,
    tag: &str,
    target: Option<&web_sys::Element>,
) -> bool {
    let Some(work) = &model.work else { return false };
    let elsewhere = !is_table(target);
    match key {
        "j" => actor.work(|work| work.step(1)),
        "k" => actor.work(|work| work.step(-1)),
        "ArrowDown" if !elsewhere => actor.work(|work| work.step(1)),
        "ArrowUp" if !elsewhere => actor.work(|work| work.step(-1)),
        "PageDown" if !elsewhere => actor.work(|work| work.step(20)),
        "PageUp" if !elsewhere => actor.work(|work| work.step(-20)),
        "ArrowRight" if !elsewhere => actor.work(|work| work.unfold(true)),
        "ArrowLeft" if !elsewhere => actor.work(|work| work.unfold(false)),
        "Home" if !elsewhere => actor.work(|work| work.step_to_end(false)),
        "End" if !elsewhere => actor.work(|work| work.step_to_end(true)),
        "Enter" if !elsewhere && tag != "BUTTON" && tag != "A" => return enter(work, actor),
        "," => actor.work(|work| work.step_layer(-1)),
        "." => actor.work(|work| work.step_layer(1)),
        "l" => actor.work(OpenWork::toggle_folding),
        "/" => return focus_filter(),
        "g" => return focus("go-to"),
        "y" => match work.row() {
            Some(row) => copy(&work.rows[row as usize].key),
            None => return false,
        },
        "Y" => match work.row() {
            Some(row) => copy(&fmt::shape(&work.rows[row as usize].shape)),
            None => return false,
        },
        _ => return false,
    }
    true
}

/// Opens or closes the selected fold.
fn enter(work: &OpenWork, actor: &Actor) -> bool {
    let Some(fold) = work.fold() else { return false };
    let name = fold.name.clone();
    actor.work(move |work| work.toggle_fold(&name));
    true
}

/// Moves to the next button in a group of radio buttons or tabs and chooses it, as is usual for
/// arrow keys.
fn arrow_in_group(target: &web_sys::Element, key: &str) -> bool {
    let by = match key {
        "ArrowRight" | "ArrowDown" => 1,
        "ArrowLeft" | "ArrowUp" => -1,
        _ => return false,
    };
    let Ok(Some(group)) = target.closest("[role=radiogroup], [role=tablist]") else { return false };
    let Ok(all) = group.query_selector_all("[role=radio]:not([disabled]), [role=tab]") else {
        return false;
    };
    let count = all.length();
    let at = (0..count).find(|&at| all.get(at).is_some_and(|one| one.is_same_node(Some(target))));
    let Some(at) = at else { return false };
    let next = (at + count).saturating_add_signed(by) % count;
    let next = all.get(next).and_then(|next| next.dyn_into::<web_sys::HtmlElement>().ok());
    if let Some(next) = &next {
        next.click();
        let _ = next.focus();
    }
    next.is_some()
}

/// Copies the shown values as text, unless text of the page is selected.
fn copy_values(model: &PageModel) -> bool {
    let selected = web_sys::window()
        .and_then(|window| window.get_selection().ok().flatten())
        .is_some_and(|selection| !selection.is_collapsed());
    let row = model.work.as_ref().and_then(crate::state::work::OpenWork::row);
    match &model.values {
        Some(values) if !selected && Some(values.row) == row => match &values.values {
            Ok(texts) => {
                // A value that is selected is copied alone.
                let at = model.values_panel.at.filter(|(of, _)| Some(*of) == row);
                let at = at.filter(|_| values.slice.is_empty());
                let at = at.and_then(|(_, number)| number.checked_sub(values.start));
                let one = at.and_then(|at| texts.get(usize::try_from(at).ok()?));
                copy(&one.cloned().unwrap_or_else(|| texts.join("\n")));
                true
            }
            Err(_) => false,
        },
        _ => false,
    }
}
