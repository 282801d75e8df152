//! The screen of a run folder: the checkpoints by step, a table of all files, and the details.

use std::rc::Rc;

use statelens_checkpoint::{Grade, visible};
use statelens_compare::runs::RunFile;
use statelens_describe::FileGrade;
use yew::prelude::*;

use super::details::RunDetails;
use super::timeline::Timeline;
use super::values::ValuesSection;
use super::words::{is_cerebras, kind_word, notes, shown_states};
use crate::page::bars::tabs;
use crate::page::drop;
use crate::page::grade::{grade_mark, grade_text, grade_title};
use crate::page::hooks::{use_size, use_small};
use crate::page::marks::{cap, classes, logo, prose, severity, tick_icon, when};
use crate::page::model::actor::Actor;
use crate::page::model::{Sheet, Tab};
use crate::page::panes::{Pane, PaneEdge};
use crate::page::rows::Rows;
use crate::page::viewport::LineLayout;
use crate::run_folder::model::RunView;
use crate::run_folder::state::{step, timestamp};
use crate::state::fmt;
use crate::text::sentence;

#[derive(Properties, PartialEq)]
pub struct RunProps {
    pub view: Rc<RunView>,
    /// The pane that a small screen shows.
    pub tab: Tab,
    /// The button that checks the folder.
    pub check: Html,
}

/// Description of the checkpoint that the trainer would load by itself.
const LOADED: &str = "the trainer would resume from it";

const COLUMNS: [(&str, &str); 7] = [
    ("file", "ck"),
    ("step", "cp num"),
    ("timestamp in name", "cs"),
    ("kind", "cd"),
    ("states", "cv"),
    ("bytes", "cb num"),
    ("prune plan", "cq"),
];

#[component]
pub fn RunScreen(props: &RunProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let view = &props.view;
    let small = use_small();
    let node = use_node_ref();
    let (room, _) = use_size(&node);
    let lines = use_memo((view.clone(), small, room), |(view, small, room)| {
        LineLayout::of_heights(
            (0..view.sorted.rows.len()).map(|at| height(view, at, *small, *room)),
        )
    });
    let count = lines.count();
    let pruned: Vec<String> = view.prunable().iter().map(|entry| entry.name.clone()).collect();
    let row = {
        let (view, lines) = (view.clone(), lines.clone());
        actor.on(move |actor, at: usize| {
            line(actor, &view, &pruned, at, (lines.top(at), lines.top(at + 1)))
        })
    };
    let pane = if props.tab == Tab::Tensor { "v-insp" } else { "v-keys" };
    html! {
        <main class={classes(&["app", "ws", "run", when(!has_timestamps(view), "undated"), when(props.tab == Tab::Tree, "v-chart")])} id="run">
            { top(&actor, view, &props.check) }
            <div class="tops"><Timeline view={view.clone()} /><ValuesSection view={view.clone()} /></div>
            { tabs(&actor, props.tab, &[(Tab::Keys, "Files"), (Tab::Tree, "Chart"), (Tab::Tensor, "Details")]) }
            <div class={classes(&["cols", pane])}>
                <section class="mid" aria-label="Files" ref={node}>
                    <div class="gridbox" role="grid" aria-label="Checkpoints" tabindex="0" aria-rowcount={count.to_string()}
                        aria-activedescendant={format!("line-{}", view.at)}>
                        <div class="head" role="row">{ for COLUMNS.iter().map(|(name, class)| html! {
                            <div class={classes(&["c", *class])} role="columnheader"><span class="lab">{ *name }</span>
                                if *name == "step" { <span class="up lab">{ " \u{25be}" }</span> }</div>
                        }) }</div>
                        <Rows lines={(*lines).clone()} at={view.at} scroll={view.scroll} {row} />
                    </div>
                </section>
                <RunDetails view={view.clone()} />
                <PaneEdge pane={Pane::Inspector} />
            </div>
            { status(&actor, view) }
        </main>
    }
}

/// Height in pixels of a row, on a small screen and on others, and of a line of its notes.
const HEIGHTS: (f64, f64, f64) = (48.0, 24.0, 16.0);
/// Width in pixels of a character of the notes, and of their margins, both rather too wide.
const NOTES: (f64, f64) = (7.0, 56.0);

/// Pixels kept free below the notes.
const NOTES_MARGIN: f64 = 4.0;

/// Returns the height of a row in pixels. Notes on a file are shown in full, below its row.
fn height(view: &RunView, at: usize, small: bool, room: f64) -> f64 {
    let notes = view.sorted.rows.get(at).map_or_else(Vec::new, |row| notes(view, row.entry));
    let (row, each) = (if small { HEIGHTS.0 } else { HEIGHTS.1 }, HEIGHTS.2);
    let fitting = ((room - NOTES.1) / NOTES.0).max(24.0);
    let lines = |note: &String| (note.chars().count() as f64 / fitting).ceil();
    let margin = if notes.is_empty() { 0.0 } else { NOTES_MARGIN };
    row + margin + notes.iter().map(lines).sum::<f64>() * each
}

/// Returns whether any checkpoint has a timestamp in its name.
fn has_timestamps(view: &RunView) -> bool {
    view.sorted.run.entries.iter().any(|entry| timestamp(entry).is_some())
}

fn top(actor: &Actor, view: &Rc<RunView>, check: &Html) -> Html {
    let on = |act: fn(&Rc<RunView>, &Actor)| {
        let view = view.clone();
        actor.on(move |actor, _: MouseEvent| act(&view, actor))
    };
    let count = |of: fn(&RunFile) -> bool| {
        view.sorted.run.entries.iter().filter(|entry| of(&entry.kind)).count() as u64
    };
    let facts = [
        (count(|kind| matches!(kind, RunFile::Checkpoint(_))), "full"),
        (count(|kind| matches!(kind, RunFile::Subset { .. })), "subset"),
        (count(|kind| matches!(kind, RunFile::Temporary)), "leftover"),
    ];
    let bytes =
        view.sorted.run.entries.iter().map(|entry| entry.bytes).fold(0, u64::saturating_add);
    let name = match view.folder.as_str() {
        "" => "run folder".to_owned(),
        folder => format!("{folder}/"),
    };
    let compare = match view.marked {
        None => "Compare two steps ",
        Some(at) if at == view.at => "Choose the other step ",
        Some(_) => "Compare with this ",
    };
    let json = view.json();
    let save = {
        let json = json.clone().unwrap_or_default();
        Callback::from(move |_: MouseEvent| drop::save_text(&json, "run.json"))
    };
    html! {
        <header class="top">
            <button class="home" onclick={on(|_, actor| actor.update(|model| model.leave()))} aria-label="Statelens: close and go to the first screen"
                title="Close and go to the first screen">{ logo() }</button>
            <span class="vr"></span>
            <h1 class="name" title={visible(&name)}>{ visible(&name) }</h1>
            <span class="badge only-l">{ if is_cerebras(view) { "Cerebras run folder" } else { "run folder" } }</span>
            <span class="facts">
                { for facts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| html! { <span><b>{ fmt::exact(*count) }</b>{ " " }{ *word }</span> }) }
                <span class="always"><b>{ fmt::bytes(bytes) }</b></span>
            </span>
            <span class="acts">
                { check.clone() }
                <button class="btn only-l" id="save-list" onclick={save} disabled={json.is_none()} title="JSON, as printed by `statelens runs --json`">{ "Save list" }</button>
                <button class="btn" id="compare-two" aria-pressed={view.marked.is_some().to_string()} disabled={!view.can_open()}
                    onclick={on(|view, actor| { super::compare_two(view, actor); })}>{ compare }{ cap("D") }</button>
                { main_button(actor, view) }
            </span>
        </header>
    }
}

/// Renders the button that opens the newest sound checkpoint, and next to it the checkpoint that
/// the trainer would load if that is a different one.
fn main_button(actor: &Actor, view: &Rc<RunView>) -> Html {
    let Some(pick) = view.pick() else {
        let text = match view.unchecked().len() {
            0 => "Nothing would be loaded",
            _ => "Open the newest whole one",
        };
        return html! { <button class="btn pri" id="open-step" disabled=true><span class="cut">{ text }</span></button> };
    };
    let open = |row: usize| {
        let view = view.clone();
        actor.on(move |actor, _: MouseEvent| super::open_row(&view, actor, row))
    };
    let show = |row: usize| {
        actor.on(move |actor, _: MouseEvent| {
            actor.run_folder(move |view| {
                view.select(row);
                view.scroll += 1;
            });
            actor.tab(Tab::Tensor);
        })
    };
    let name = |row: usize| {
        let entry =
            view.sorted.rows.get(row).and_then(|row| view.sorted.run.entries.get(row.entry));
        entry.map(|entry| visible(&entry.name))
    };
    let what = match pick.is_sound {
        true if view.unread().0.is_empty() => "newest without NaN",
        true => "newest whole",
        false => LOADED,
    };
    let other_button = match pick.loaded {
        Some(row) => {
            let how = view.defect(row);
            html! {
                <span class="loaded">{ severity(Grade::Warning) }<button class="textlink" id="show-loaded" onclick={show(row)}
                    title={name(row).map(|name| format!("Show the defects of {name}"))}>{ format!("Step {} {how}, and {LOADED}", view.label_of(row)) }</button></span>
            }
        }
        None if !pick.is_sound => html! {
            <span class="loaded" id="none-sound">{ severity(Grade::Warning) }<span>{ "no checkpoint is whole" }</span></span>
        },
        None => html! {},
    };
    html! {
        <>
            { other_button }
            <button class="btn pri" id="open-step" title={name(pick.row)} onclick={open(pick.row)}>
                <span class="cut">{ format!("Open {} \u{b7} {what}", view.label_of(pick.row)) }</span>
                if view.at == pick.row { { " " }{ cap("\u{23ce}") } }</button>
        </>
    }
}

fn line(
    actor: &Actor,
    view: &Rc<RunView>,
    pruned: &[String],
    at: usize,
    (top, bottom): (f64, f64),
) -> Html {
    let Some(row) = view.sorted.rows.get(at) else { return html! {} };
    let Some(entry) = view.sorted.run.entries.get(row.entry) else { return html! {} };
    let (selected, height) = (at == view.at, bottom - top);
    let onclick = actor.on(move |actor, _: MouseEvent| {
        actor.run_folder(move |view| view.select(at));
        actor.tab(Tab::Tensor);
    });
    let open = {
        let view = view.clone();
        actor.on(move |actor, _: MouseEvent| {
            super::open(&view, actor);
        })
    };
    let latest = Some(&entry.name) == view.sorted.run.latest.as_ref();
    let notes = notes(view, row.entry);
    let grade = view.grade(row.entry);
    let mark = match grade {
        None if !notes.is_empty() => severity(Grade::Warning),
        None if !entry.holds_states() => html! {},
        // Notes may warn of more than the grade says.
        Some(good) if good.is_good() && !notes.is_empty() => severity(Grade::Warning),
        grade => {
            html! { <>{ grade_mark(grade) }<span class="vh">{ format!("{} ", grade_text(grade)) }</span></> }
        }
    };
    let number = step(entry).and_then(|step| u64::try_from(step).ok()).map(fmt::exact);
    let checks = view.checks.get(row.entry).and_then(Option::as_ref);
    let states = match (checks, &entry.kind) {
        (Some(checks), RunFile::Subset { .. }) => shown_states(&checks.states).join(", "),
        (Some(checks), _) => match shown_states(&checks.states).len() {
            0 => String::new(),
            count => fmt::plural(count as u64, "state"),
        },
        (None, _) if entry.holds_states() => "not opened yet".to_owned(),
        (None, RunFile::Index) if view.sorted.error.is_none() && view.sorted.run.indexed => {
            format!("lists {}", fmt::exact(view.sorted.listed as u64))
        }
        _ => String::new(),
    };
    let planned = pruned.contains(&entry.name).then_some("prune");
    let plan = match &entry.kind {
        RunFile::Checkpoint(_) if planned.is_some() => html! { <b>{ "prune" }</b> },
        RunFile::Checkpoint(_) if latest => {
            html! { <>{ "keep" }<span class="dim">{ " \u{b7} autoload" }</span></> }
        }
        RunFile::Checkpoint(_) if view.best.contains(&entry.name) => {
            html! { <>{ "keep" }<span class="dim">{ " \u{b7} best" }</span></> }
        }
        RunFile::Checkpoint(_) => html! { { "keep" } },
        RunFile::Subset { .. } => {
            html! { <>{ "keep" }<span class="dim">{ " \u{b7} subset" }</span></> }
        }
        _ => html! { <span class="dim">{ "not touched" }</span> },
    };
    let class = classes(&[
        "row",
        when(selected, "sel"),
        when(!entry.is_checkpoint() && !entry.holds_states(), "quiet"),
    ]);
    html! {
        <div key={at} id={format!("line-{at}")} {class} role="row" data-name={visible(&entry.name)} data-plan={planned} data-grade={grade.map(FileGrade::word)} aria-rowindex={(at + 1).to_string()} aria-selected={selected.to_string()}
            style={format!("top:{top}px;height:{height}px")} {onclick} ondblclick={open}>
            <div class="c ck m" role="gridcell" title={visible(&entry.name)}>
                <span class="cut">{ visible(&entry.name) }</span>
                if latest { <svg class="lens" width="12" height="12" viewBox="0 0 12 12" role="img" aria-label="autoload picks this"><circle cx="6" cy="6" r="4.5" fill="none" stroke="var(--accent)" stroke-width="2" /></svg> }
                if view.marked == Some(at) { <span class="badge">{ "A" }</span> }
            </div>
            <div class="c cp num" role="gridcell">{ number }</div>
            <div class="c cs m dim" role="gridcell">{ timestamp(entry) }</div>
            <div class="c cd" role="gridcell" title={grade.map(grade_title)}>{ mark }<span>{ kind_word(&entry.kind) }</span></div>
            <div class="c cv m dim" role="gridcell" title={states.clone()}><span class="v">{ states }</span></div>
            <div class="c cb num" role="gridcell">{ fmt::bytes(entry.bytes) }</div>
            <div class="c cq" role="gridcell">{ plan }</div>
            if !notes.is_empty() { <div class="c why" role="gridcell">{ for notes.iter().map(|note| html! { <p>{ prose(&sentence(note)) }</p> }) }</div> }
        </div>
    }
}

fn status(actor: &Actor, view: &RunView) -> Html {
    let show = actor.on(move |actor, _: MouseEvent| actor.show(Some(Sheet::Keys)));
    let warnings = (0..view.sorted.run.entries.len())
        .filter(|entry| !notes(view, *entry).is_empty())
        .count() as u64
        + u64::from(view.sorted.error.is_some())
        + view.sorted.run.only_index.len() as u64;
    let all = view.sorted.run.entries.iter().filter(|entry| entry.holds_states()).count() as u64;
    let open = view.unchecked().len() as u64;
    html! {
        <footer class="status">
            if warnings > 0 { <span>{ severity(Grade::Warning) }<b>{ fmt::plural(warnings, "warning") }</b></span> }
            else { <span>{ tick_icon() }{ "no warnings" }</span> }
            <span class="dim opt" role="status">{ format!("{}, ", fmt::plural(view.sorted.rows.len() as u64, "file")) }
                { if open > 0 { format!("structure of {} of {} read", fmt::exact(all - open), fmt::exact(all)) } else { format!("structure of {} read", fmt::exact(all)) } }</span>
            if view.marked.is_some() { <span>{ "Choose another step and press " }{ cap("D") }</span> }
            <span class="grow"></span>
            <button class="textrow opt dim" onclick={show}>{ "shortcuts " }{ cap("?") }</button>
        </footer>
    }
}
