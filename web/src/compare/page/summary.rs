//! The verdict: whether the checkpoints match, how many keys differ in which way, and the progress
//! of reading values.

use statelens_checkpoint::Grade;
use yew::prelude::*;

use crate::compare::message::{CompareOptions, ComparisonUpdate};
use crate::compare::model::ComparisonState;
use crate::compare::state::{MARKS, Mark};
use crate::page::marks::{cap, classes, severity, tick_icon, when};
use crate::page::model::actor::Actor;
use crate::page::running::{bytes_done, left, progress_bar};
use crate::protocol::job::JobKind;
use crate::state::fmt;
use crate::state::task::Task;

/// Renders the line under the names.
pub(super) fn summary(actor: &Actor, compare: &ComparisonState) -> Html {
    let counts = compare.pairs.as_ref().map(|pairs| pairs.counts()).unwrap_or_default();
    let shown = MARKS.iter().zip(counts).filter(|(_, count)| *count > 0);
    let now = compare.reading.now().filter(|now| now.total > 0);
    html! {
        <div class="summary" id="verdict" data-state={state(compare)}>
            <b role="status">{ verdict(compare) }</b>
            { for shown.map(|(mark, count)| html! {
                <span class={classes(&["fig", when(*mark == Mark::Equal || *mark == Mark::Waiting, "dim")])}>
                    <b>{ fmt::exact(count) }</b>{ " " }{ mark.word() }</span>
            }) }
            <span class="grow"></span>
            { end(actor, compare) }
            if let Some(now) = now.filter(|_| compare.error.is_none()) {
                { progress_bar(false, "Reading values", (now.done, now.total)) }
            }
        </div>
    }
}

/// Returns the name of the state of the comparison.
fn state(compare: &ComparisonState) -> &'static str {
    match &compare.reading {
        _ if compare.error.is_some() => "failed",
        Task::Running(_) => "running",
        Task::Done(_) => "done",
        Task::Idle | Task::Failed(_) => "stopped",
    }
}

fn verdict(compare: &ComparisonState) -> Html {
    if compare.error.is_some() {
        return html! { <>{ severity(Grade::Warning) }{ " Not compared." }</> };
    }
    if compare.listed.is_some() {
        return html! { { "A list of keys." } };
    }
    let differ = compare.pairs.as_ref().is_some_and(|pairs| !pairs.found.is_empty());
    let text = match (&compare.reading, differ) {
        // The number of bytes to read is known once the keys are compared.
        (Task::Running(task), _) if task.now.total == 0 => match compare.opened {
            None => "Opening B\u{2026}",
            Some(_) => "Comparing keys\u{2026}",
        },
        (_, true) => "They differ.",
        (Task::Running(_), false) => "The structure is the same.",
        (Task::Done(_), false) => {
            return html! { <>{ tick_icon() }{ " They match." }</> };
        }
        (Task::Idle | Task::Failed(_), false) => "No difference so far.",
    };
    html! { { text } }
}

/// Renders the end of the line: progress or result, with a button to stop or restart.
fn end(actor: &Actor, compare: &ComparisonState) -> Html {
    if compare.error.is_some() {
        return html! {};
    }
    let stop = actor.on(move |actor, _: MouseEvent| actor.stop(JobKind::Compare));
    let read_values = actor.on(move |actor, _: MouseEvent| actor.compare(ComparisonState::restart));
    match &compare.reading {
        Task::Running(task) if task.now.total == 0 => html! {},
        Task::Running(task) => {
            let now = &task.now;
            html! {
                <>
                    <span class="lab only-l">{ format!("values: {}", bytes_done(now.done, now.total)) }
                        if let Some(left) = left(now, &task.past) { { format!(", {left} left") } }</span>
                    <button class="btn" id="stop" onclick={stop}>{ "Stop " }{ cap("Esc") }</button>
                </>
            }
        }
        Task::Done(result) => {
            let ComparisonUpdate { millis, close, nans, .. } = &**result;
            let mut text = format!("values compared in {}", fmt::seconds(*millis));
            text += &format!(" \u{b7} {}", options_text(&compare.options));
            if *close > 0 {
                text += &format!(
                    " \u{b7} {} equal only within the tolerance",
                    fmt::plural(*close, "tensor")
                );
            }
            if *nans > 0 {
                text += &format!(" \u{b7} {} in the same place", fmt::plural(*nans, "NaN"));
            }
            html! { <span class="lab">{ text }</span> }
        }
        Task::Idle | Task::Failed(_) => html! {
            <>
                if let Some(error) = compare.reading.error() { <span class="w-warn cut" title={error.text.clone()}>{ &error.title }</span> }
                else { <span class="lab">{ "stopped before all values were read" }</span> }
                <button class="btn" onclick={read_values}>{ "Read the values" }</button>
            </>
        },
    }
}

fn options_text(options: &CompareOptions) -> String {
    match options.tolerance {
        None => "tolerance 0".to_owned(),
        Some((relative, absolute)) => format!("rtol {relative:e}, atol {absolute:e}"),
    }
}
