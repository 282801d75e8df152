//! The list of the checkpoints of a drop: shows which is open and which are damaged, and lets the
//! user tick two to compare.

use std::rc::Rc;

use statelens_checkpoint::visible;
use statelens_describe::FileGrade;
use yew::prelude::*;

use crate::checkpoint_list::state::{Rail, RailEntry, RailOrder};
use crate::page::drop::{self, DroppedFile};
use crate::page::grade::{grade_mark, grade_text};
use crate::page::hooks::ByAddress;
use crate::page::marks::{chosen, classes, prose, typed, when};
use crate::page::model::PageModel;
use crate::page::model::actor::Actor;
use crate::page::pair;
use crate::protocol::ToWorker;
use crate::state::fmt;

/// Maximum number of checkpoints that are opened in advance to check whether they are damaged.
const MAX_CHECKED: usize = 64;

/// The characters after which a name wraps.
const BREAKS: [char; 4] = ['.', '/', '_', '-'];
/// Number of checkpoints from which on the list can be filtered and sorted.
const MIN_TOOLS: usize = 6;

/// Properties of the list.
#[derive(Properties, PartialEq)]
pub struct RailProps {
    /// The checkpoints.
    pub rail: Rc<Rail>,
    pub files: Rc<Vec<DroppedFile>>,
    /// Index of the open file.
    pub at: Option<u32>,
}

/// The list of checkpoints.
#[component]
pub fn RailPane(props: &RailProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let node = use_node_ref();
    let at = props.at.and_then(|file| props.rail.find(file));
    {
        let node = node.clone();
        use_effect_with(at, move |_| {
            let list = node.cast::<web_sys::Element>();
            let shown = list.and_then(|list| list.query_selector(".at").ok().flatten());
            let (Some(list), Some(shown)) = (node.cast::<web_sys::Element>(), shown) else {
                return;
            };
            let (frame, row) = (list.get_bounding_client_rect(), shown.get_bounding_client_rect());
            if row.bottom() > frame.bottom() || row.top() < frame.top() {
                list.set_scroll_top(list.scroll_top() + (row.top() - frame.top()) as i32);
            }
        });
    }
    let sort = use_state(RailOrder::default);
    let filter = use_state(String::new);
    let shown = props.rail.shown(*sort, &filter);
    let count = props.rail.entries.len();
    let oninput = {
        let filter = filter.clone();
        Callback::from(move |event: InputEvent| {
            if let Some(text) = typed(&event) {
                filter.set(text);
            }
        })
    };
    let onsort = {
        let sort = sort.clone();
        Callback::from(move |event: Event| {
            let word = chosen(&event).unwrap_or_default();
            sort.set(RailOrder::ALL.into_iter().find(|it| it.word() == word).unwrap_or_default());
        })
    };
    let compare = props.rail.pair().map(|(first, second)| {
        let files = props.files.clone();
        actor.on(move |actor, _: MouseEvent| {
            let of = |file| (files.as_ref().clone(), Some(file));
            pair::begin_pair(actor, of(first), of(second));
        })
    });
    html! {
        <section class="rail" id="rail" aria-label="Files">
            <div class="pane-h">
                <b>{ fmt::plural(props.rail.entries.len() as u64, "checkpoint") }</b>
                { for props.rail.counts().into_iter().map(|(grade, count)| html! {
                    <span class={if grade > FileGrade::NotFinite { "w-danger" } else { "w-warn" }}>{ format!("{} {}", fmt::exact(count), grade.word()) }</span>
                }) }
                <span class="grow"></span>
                if let Some(onclick) = compare {
                    <button class="btn small" id="compare-ticked" {onclick}>{ if props.rail.entries.len() == 2 { "Compare both" } else { "Compare ticked" } }</button>
                }
            </div>
            if count >= MIN_TOOLS {
                <div class="railtools">
                    <label class="inp"><input type="text" id="filter-files" value={(*filter).clone()} {oninput}
                        placeholder="filter files" aria-label="Filter files" autocomplete="off" spellcheck="false" /></label>
                    <label class="chip menu">{ "sort" }<select aria-label="Sort files" onchange={onsort}>
                        { for RailOrder::ALL.into_iter().map(|order| html! { <option value={order.word()} selected={order == *sort}>{ order.word() }</option> }) }
                    </select></label>
                </div>
            }
            <ul ref={node} aria-label="Dropped checkpoints">
                { for shown.iter().map(|&index| {
                    let entry = &props.rail.entries[index];
                    line(&actor, &props.files, entry, at == Some(index), props.rail.ticked.contains(&entry.main))
                }) }
            </ul>
            if shown.is_empty() { <p class="empty">{ "No file has this in its name." }</p> }
        </section>
    }
}

fn line(
    actor: &Actor,
    files: &Rc<Vec<DroppedFile>>,
    entry: &RailEntry,
    at: bool,
    ticked: bool,
) -> Html {
    let main = entry.main;
    let open = {
        let files = files.clone();
        actor.on(move |actor, _: MouseEvent| {
            if !at {
                actor.open(files.as_ref().clone(), Some(main));
            }
        })
    };
    let tick = actor.on(move |actor, _: Event| actor.update(move |model| model.tick(main)));
    let grade = entry.check.as_ref().and_then(|check| check.grade);
    let word = match &entry.check {
        Some(check) if check.grade.is_none() => format!("can\u{2019}t be read: {}", check.reason),
        Some(check) if !check.reason.is_empty() => {
            format!("{}: {}", grade_text(grade), check.reason)
        }
        _ => grade_text(grade).to_owned(),
    };
    let state = match &entry.check {
        Some(check) if check.grade.is_none() => "unreadable",
        None => "unknown",
        _ => grade_text(grade),
    };
    let name = visible(&entry.name);
    let files = if entry.files > 1 {
        format!("{} files, ", fmt::exact(entry.files))
    } else {
        String::new()
    };
    html! {
        <li key={main} class={classes(&[when(at, "at")])} data-file={main.to_string()} data-name={name.clone()} data-state={state}>
            <input type="checkbox" class="cb" checked={ticked} onchange={tick} aria-label={format!("Compare {name}")} title="Tick two to compare them" />
            <button onclick={open} aria-current={at.then_some("true")} title={format!("{name}: {files}{}, {word}", fmt::bytes(entry.bytes))}>
                <span class="n m">{ for name.split_inclusive(BREAKS).map(|part| html! { <>{ part }<wbr /></> }) }</span>
                <span class="num at-step">{ entry.step.map(fmt::exact) }</span>
                <span class="num">{ fmt::bytes(entry.bytes) }</span>
                { grade_mark(grade) }
                if state == "unreadable" || grade.is_some_and(|grade| !grade.is_good()) { <span class="why">{ prose(&word) }</span> }
                else { <span class="vh">{ word }</span> }
            </button>
        </li>
    }
}

/// Lets the worker open the other checkpoints of a drop to check whether they are damaged.
#[hook]
pub fn use_rail(model: &PageModel, actor: &Actor) {
    let actor = actor.clone();
    let open = model.work.as_ref().map(|work| ByAddress(work.rows.clone()));
    let (files, rail) = (model.files.clone(), model.rail.clone());
    use_effect_with((open, model.screen), move |(open, _)| {
        let Some(rail) = rail.filter(|_| open.is_some()) else { return };
        let requested: Vec<u32> = rail.unchecked().into_iter().take(MAX_CHECKED).collect();
        if requested.is_empty() {
            return;
        }
        let handles = drop::handles(&files);
        let names = files.iter().map(|file| file.name.clone()).collect();
        let check = ToWorker::CheckFiles { files: names, requested };
        actor.request_with(&check, &handles, &wasm_bindgen::JsValue::UNDEFINED);
    });
}

/// Opens the next or previous checkpoint of the drop. Returns whether there is one.
pub fn step_file(model: &PageModel, actor: &Actor, forward: bool) -> bool {
    let at = model.requested.unwrap_or(0);
    let next = model.rail.as_ref().and_then(|rail| rail.neighbour(at, forward));
    match next {
        Some(next) => {
            actor.open(model.files.as_ref().clone(), Some(next));
            true
        }
        None => false,
    }
}
