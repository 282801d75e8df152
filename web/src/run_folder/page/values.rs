//! Statistics of a run's values over its steps, read on demand and drawn as lines.

use std::rc::Rc;

use statelens_checkpoint::{Grade, listed, visible};
use statelens_compare::runs::{
    Grouping, KEPT, TimelineMeasure, first_lines, group_names, over_steps,
};
use wasm_bindgen::JsValue;
use yew::prelude::*;

use super::axis::shared;
use crate::page::chart::ChartView;
use crate::page::choice::{choice, store};
use crate::page::drop;
use crate::page::marks::{chip, severity};
use crate::page::model::actor::Actor;
use crate::page::running::{bytes_done, left, running_line};
use crate::protocol::ToWorker;
use crate::protocol::job::JobKind;
use crate::protocol::task::TaskRequest;
use crate::run_folder::message::RunValuesRequest;
use crate::run_folder::model::{RunView, StoredValues};
use crate::state::fmt;
use crate::state::task::{RunningTask, Task};

/// Maximum number of lines drawn.
const LINES: usize = 6;
/// Maximum number of groups offered as chips.
const CHIPS: usize = 40;

#[derive(Properties, PartialEq)]
pub(super) struct ValuesProps {
    pub(super) view: Rc<RunView>,
}

fn read(view: &RunView, actor: &Actor, requested: Vec<u32>) {
    let handles = drop::handles(&view.files);
    let files = view.files.iter().map(|dropped| dropped.name.clone()).collect();
    let task = ToWorker::Start(TaskRequest::RunValues(RunValuesRequest { files, requested }));
    actor.bridge.post_with(&task, &handles, &JsValue::UNDEFINED);
    actor.run_folder(|view| view.values.task.start());
}

/// Renders the result of loading the file of kept values.
fn stored(view: &RunView) -> Html {
    let kept = html! { <code>{ KEPT }</code> };
    match &view.values.stored {
        None => html! {},
        Some(StoredValues::Unused(reason)) => html! {
            <p class="warnline" id="kept">{ severity(Grade::Warning) }<span>{ kept }{ format!(" is not used: {reason}.") }</span></p>
        },
        Some(StoredValues::Used(0, 0)) => html! {},
        Some(StoredValues::Used(known, changed)) => {
            let count = |count: &usize| fmt::plural(*count as u64, "checkpoint");
            let changed = match changed {
                0 => String::new(),
                1 => " 1 checkpoint was changed since; read its values again.".to_owned(),
                more => format!(" {} were changed since; read their values again.", count(more)),
            };
            html! {
                <p class="small mid-ink" id="kept">
                    if *known > 0 { { format!("Values of {} are from ", count(known)) }{ kept }{ "." } }
                    else { { kept }{ " has no values that still apply." } }
                    { changed }</p>
            }
        }
    }
}

/// Explains why some groups are not drawn by default.
fn single(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| visible(name)).collect();
    let (hold, them) = if names.len() == 1 { ("holds", "it") } else { ("hold", "them") };
    let listed = listed(&names, 3);
    format!(
        "{listed} {hold} single numbers, such as a loss scale, in another range. Press {them} to draw {them}, too."
    )
}

#[component]
pub(super) fn ValuesSection(props: &ValuesProps) -> Html {
    let by = use_state(Grouping::default);
    let measure = use_state(TimelineMeasure::default);
    let chosen = use_state(Vec::<String>::new);
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let view = &props.view;
    if view.sorted.run.checkpoints().count() < 2 {
        return html! {};
    }
    let (unread, bytes) = view.unread();
    let body = match &view.values.task {
        Task::Running(RunningTask { now, past, .. }) => {
            let stop = actor.on(move |actor, _: MouseEvent| actor.stop(JobKind::RunValues));
            let mut words = bytes_done(now.done, now.total);
            if let Some(left) = left(now, past) {
                words += &format!(" \u{b7} {left} left");
            }
            let bar = Some(("Reading values", (now.done, now.total)));
            html! { <p>{ running_line("stop-values", bar, words, stop) }</p> }
        }
        _ if unread.is_empty() => html! {},
        _ => {
            let about = view.values.rate.filter(|rate| *rate > 0.0);
            let about =
                about.map(|rate| format!(", about {}", fmt::time_left(bytes as f64 / rate)));
            let text = format!(
                "Read values of {}, {}{}",
                fmt::plural(unread.len() as u64, "checkpoint"),
                fmt::bytes(bytes),
                about.unwrap_or_default()
            );
            let view = view.clone();
            let matrix = !view.unchecked().is_empty();
            let onclick = actor.on(move |actor, _: MouseEvent| read(&view, actor, unread.clone()));
            html! { <p><button class="btn" id="read-run" disabled={matrix} {onclick}>{ text }</button></p> }
        }
    };
    let steps = view.steps(*by);
    let names = group_names(&steps);
    let body = html! { <>{ body }{ stored(view) }</> };
    if names.is_empty() {
        return html! { <div class="runvalues">{ body }</div> };
    }
    let save = {
        let view = view.clone();
        Callback::from(move |_: MouseEvent| drop::save_text(&view.values_json(), KEPT))
    };
    let first = first_lines(&steps, LINES);
    let (shown, left_out) = match chosen.iter().any(|name| names.contains(name)) {
        true => {
            let chosen = names.iter().filter(|name| chosen.contains(name));
            (chosen.take(LINES).cloned().collect(), Vec::new())
        }
        false => (first.drawn, first.single),
    };
    let mut chart = over_steps(&steps, &shown, *measure);
    chart.below = Some(shared(&view.sorted.run));
    let group_chip = |name: &String| {
        let (chosen, own, now) = (chosen.clone(), name.clone(), shown.clone());
        let onclick = Callback::from(move |_: MouseEvent| {
            let mut now = now.clone();
            match now.iter().position(|name| *name == own) {
                Some(at) => drop(now.remove(at)),
                None => now.push(own.clone()),
            }
            chosen.set(now);
        });
        chip(shown.contains(name), None, onclick, html! { { visible(name) } })
    };
    html! {
        <div class="runvalues" id="run-values">
            { body }
            if !view.values.task.is_running() {
                <p><button class="textlink" id="save-values" onclick={save}>{ "Save these values" }</button>
                    <span class="dim">{ " next to the checkpoints to skip re-reading" }</span></p>
            }
            <div class="scales">
                { choice(true, "Lines are of", &[(Grouping::State, "state"), (Grouping::Role, "role")], *by, store(&by)) }
                { choice(true, "Quantity over steps", &[(TimelineMeasure::Norm, "norm"), (TimelineMeasure::Deviation, "\u{3c3}")], *measure, store(&measure)) }
                <span class="chips" role="group" aria-label="Groups">{ for names.iter().take(CHIPS).map(group_chip) }</span>
            </div>
            if !left_out.is_empty() { <p class="dim" id="left-out">{ single(&left_out) }</p> }
            <ChartView {chart} height={225 + 15 * shown.len() as u32} name={format!("{} over steps", view.folder)} />
        </div>
    }
}
