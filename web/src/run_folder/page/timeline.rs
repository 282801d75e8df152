//! The checkpoints of a run along an axis of steps, with a lens at the one that would be loaded.

use statelens_compare::runs::{FileEntry, RunFile};
use yew::prelude::*;

use super::axis::{LEFT, RIGHT, last_step, shared};
use crate::page::hooks::use_size;
use crate::page::marks::{HATCHED, classes, when};
use crate::page::model::actor::Actor;
use crate::run_folder::model::RunView;
use crate::run_folder::state::{step, ticks};
use crate::state::fmt;

#[derive(Properties, PartialEq)]
pub(super) struct TimelineProps {
    pub(super) view: std::rc::Rc<RunView>,
}

/// Names of the lanes, with their y coordinates in pixels.
const LANES: [(&str, f64); 3] = [("full", 30.0), ("subset", 72.0), ("leftover", 106.0)];

/// Returns the lane for the kind of an entry; `None` for files that the timeline does not show.
fn lane(entry: &FileEntry) -> Option<usize> {
    match entry.kind {
        RunFile::Checkpoint(_) | RunFile::NoDate => Some(0),
        RunFile::Subset { .. } => Some(1),
        RunFile::TrainerState | RunFile::Temporary => Some(2),
        RunFile::Last | RunFile::Best | RunFile::Index | RunFile::Other => None,
    }
}

#[component]
pub(super) fn Timeline(props: &TimelineProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let node = use_node_ref();
    let (width, _) = use_size(&node);
    let view = &props.view;
    let entries = &view.sorted.run.entries;
    let most = last_step(&view.sorted.run);
    // Subtracts the padding.
    let width = (width - 32.0).floor().max(200.0);
    let (left, right) = (LEFT, width - RIGHT);
    let x = |step: u128| {
        let share = if most == 0 { 0.0 } else { step as f64 / most as f64 };
        left + share * (right - left)
    };
    let used: Vec<bool> =
        (0..3).map(|at| at == 0 || entries.iter().any(|entry| lane(entry) == Some(at))).collect();
    let axis = 24.0
        + LANES
            .iter()
            .zip(&used)
            .filter(|(_, used)| **used)
            .map(|((_, y), _)| y)
            .fold(0.0, |a, b| f64::max(a, *b));
    let every = shared(&view.sorted.run).every(right - left);
    // Entries of the same step are placed side by side, the newest at the step itself; rows are
    // sorted newest first.
    let mut places: Vec<(usize, f64, f64)> = Vec::new();
    let mut before = (usize::MAX, None, 0.0);
    for (at, row) in view.sorted.rows.iter().enumerate() {
        let Some(entry) = entries.get(row.entry) else { continue };
        let (Some(lane), Some(step)) = (lane(entry), step(entry)) else { continue };
        let shift = if (before.0, before.1) == (lane, Some(step)) { before.2 + 11.0 } else { 0.0 };
        before = (lane, Some(step), shift);
        places.push((at, (x(step) - shift).max(left), LANES[lane].1));
    }
    let marks = places.iter().rev().filter_map(|(at, x, y)| {
        let entry = entries.get(view.sorted.rows.get(*at)?.entry)?;
        Some(mark(&actor, view, entry, *at, *x, *y))
    });
    let latest = places.iter().find(|(at, ..)| {
        let entry = view.sorted.rows.get(*at).and_then(|row| entries.get(row.entry));
        entry.is_some_and(|entry| Some(&entry.name) == view.sorted.run.latest.as_ref())
    });
    html! {
        <div class="timeline" ref={node}>
            <svg width={width.to_string()} height={(axis + 26.0).to_string()} role="img" aria-label={describe(view)}>
                { for LANES.iter().zip(&used).filter(|(_, used)| **used).map(|((name, y), _)| html! {
                    <><text x="0" y={(y + 4.0).to_string()} class="ink2">{ *name }</text>
                        <path d={format!("M{left} {y}H{width}")} stroke="var(--line)" /></>
                }) }
                <path d={format!("M{left} {axis}H{width}")} stroke="var(--line-2)" />
                <text x="0" y={(axis + 18.0).to_string()}>{ "step" }</text>
                { for ticks(most).iter().enumerate().map(|(at, tick)| {
                    let at_x = x(*tick);
                    html! { <>
                        <path d={format!("M{at_x:.1} {axis}v{}", if at % every == 0 { 6 } else { 4 })} stroke="var(--line-2)" />
                        if at % every == 0 { <text x={format!("{at_x:.1}")} y={(axis + 18.0).to_string()} text-anchor="middle">{ short(*tick) }</text> }
                    </> }
                }) }
                { for marks }
                if let Some((_, x, y)) = latest { { lens(*x, *y, width) } }
            </svg>
        </div>
    }
}

/// Describes the timeline in words, for screen readers.
fn describe(view: &RunView) -> String {
    let run = &view.sorted.run;
    let lanes = LANES.iter().enumerate().filter_map(|(at, (name, _))| {
        let of = run.entries.iter().filter(|entry| lane(entry) == Some(at));
        let steps: Vec<u128> = of.filter_map(step).collect();
        let (first, last) = (steps.iter().min()?, steps.iter().max()?);
        Some(format!("{} {name} from {} to {}", steps.len(), short(*first), short(*last)))
    });
    let mut text = format!("Checkpoints by step: {}", lanes.collect::<Vec<_>>().join(", "));
    let latest = run.entries.iter().find(|entry| Some(&entry.name) == run.latest.as_ref());
    if let Some(latest) = latest.and_then(step) {
        text += &format!("; autoload picks {}", short(latest));
    }
    text
}

/// Renders the lens with its label: next to it, or above it if there is no room.
fn lens(x: f64, y: f64, width: f64) -> Html {
    let place = format!("{:.1}", if x + 110.0 > width { (x + 17.0).min(width) } else { x + 24.0 });
    html! {
        <>
            <circle cx={format!("{x:.1}")} cy={y.to_string()} r="17" fill="none" stroke="var(--accent)" stroke-width="2" pointer-events="none" />
            if x + 110.0 > width {
                <text x={place} y="6" text-anchor="end"><tspan class="auto">{ "autoload" }</tspan>{ " picks this" }</text>
            } else {
                <text class="auto" x={place.clone()} y={(y - 2.0).to_string()}>{ "autoload" }</text>
                <text x={place} y={(y + 11.0).to_string()}>{ "picks this" }</text>
            }
        </>
    }
}

fn short(step: u128) -> String {
    match u64::try_from(step) {
        Ok(step) if step < 1_000_000 => fmt::exact(step),
        Ok(step) => fmt::count(step),
        Err(_) => format!("{:.1e}", step as f64),
    }
}

/// Renders an entry: filled if sound, as an outline if a pruning would delete it, hatched in amber
/// if it is a leftover or damaged.
fn mark(actor: &Actor, view: &RunView, entry: &FileEntry, at: usize, x: f64, y: f64) -> Html {
    let latest = Some(&entry.name) == view.sorted.run.latest.as_ref();
    let number = view.sorted.rows.get(at).map_or(usize::MAX, |row| row.entry);
    let broken = !view.problem(number).is_empty()
        || matches!(entry.kind, RunFile::Temporary | RunFile::NoDate);
    let is_pruned = view.prunable().iter().any(|pruned| pruned.name == entry.name);
    let (height, color) = match entry.kind {
        RunFile::Checkpoint(_) | RunFile::NoDate => (26.0, "var(--d-f32)"),
        RunFile::Subset { .. } => (16.0, "var(--d-bf16)"),
        _ => (16.0, "var(--ink-3)"),
    };
    let (fill, stroke, dash) = match (broken, latest, is_pruned) {
        (true, ..) => (HATCHED, "var(--warn)", "none"),
        (_, true, _) => ("var(--accent)", "var(--accent)", "none"),
        (_, _, true) => ("var(--panel)", color, "2 2"),
        _ if entry.kind == RunFile::TrainerState => ("none", color, "none"),
        _ => (color, color, "none"),
    };
    let onclick = actor.on(move |actor, _: MouseEvent| {
        actor.run_folder(move |view| {
            view.select(at);
            view.scroll += 1;
        });
    });
    html! {
        <g {onclick} class={classes(&[when(view.at == at, "on")])}>
            <title>{ &entry.name }</title>
            <rect x={format!("{:.1}", x - 9.0)} y={format!("{}", y - 17.0)} width="18" height="34" fill="transparent" />
            <rect x={format!("{:.1}", x - 4.0)} y={format!("{}", y - height / 2.0)} width="8" height={height.to_string()} {fill} {stroke} stroke-dasharray={dash} />
            if view.at == at { <path d={format!("M{:.1} {}h12", x - 6.0, y + height / 2.0 + 4.0)} stroke="var(--accent)" stroke-width="2" /> }
        </g>
    }
}
