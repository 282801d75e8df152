//! The scan control in the top bar: a button, then a progress bar in its place, then the result.

use statelens_checkpoint::Grade;
use yew::prelude::*;

use crate::convert::page::running::recent;
use crate::page::marks::{progress_bar, severity, tick_icon};
use crate::page::model::Sheet;
use crate::page::model::actor::Actor;
use crate::protocol::task::JobProgress;
use crate::state::fmt;
use crate::state::task::Task;
use crate::state::work::OpenWork;
use crate::values::model::ValuesPanel;

/// Starts a scan. Asks for a higher limit first if the scan would fetch more than one action may.
fn start_scan(actor: &Actor, work: &OpenWork, cap: Option<u64>) {
    if cap.is_some_and(|cap| work.sums.bytes > cap) {
        actor.show(Some(Sheet::Limit));
    } else {
        actor.scan();
    }
}

/// Renders the button, or the progress bar in its place. For a remote checkpoint, `cap` is the
/// maximum number of bytes that one action may fetch.
pub fn scan_button(
    actor: &Actor,
    work: &OpenWork,
    values_panel: &ValuesPanel,
    cap: Option<u64>,
) -> Html {
    if work.opened.summary || work.sums.tensors == 0 {
        return html! {};
    }
    let begin = {
        let work = work.clone();
        actor.on(move |actor, _: MouseEvent| start_scan(actor, &work, cap))
    };
    let show = actor.on(move |actor, _: MouseEvent| actor.show(Some(Sheet::Findings)));
    let title = match cap {
        Some(_) => {
            format!(
                "Fetch {} and read all tensors: deviations, extremes, zeros, NaN",
                fmt::bytes(work.sums.bytes)
            )
        }
        None => "Read all tensors once: deviations, extremes, zeros, NaN".to_owned(),
    };
    match &values_panel.scan {
        Task::Idle => {
            html! { <button class="btn scan" id="scan" {title} onclick={begin}>{ "Scan values" }</button> }
        }
        Task::Running(task) => gauge(actor, &task.now, &task.past, values_panel.stopping),
        Task::Done(done) => html! {
            <span class="scan">
                <button class="textrow" id="scanned" onclick={show} title="Findings (F)"><span role="status">
                    { mark(work) }
                    if done.unread_bytes > 0 { { format!("stopped after {}", fmt::bytes(done.bytes)) } }
                    else if done.bytes == 0 { { "all values are read" } }
                    else { { format!("scanned {} in {}", fmt::bytes(done.bytes), fmt::seconds(done.millis)) } }
                </span></button>
                if done.unread_bytes > 0 { <button class="btn" id="scan" {title} onclick={begin}>{ format!("Scan the rest \u{b7} {}", fmt::bytes(done.unread_bytes)) }</button> }
            </span>
        },
        Task::Failed(error) => html! {
            <span class="scan">
                <button class="textrow w-warn" id="scan-failed" onclick={show} title={format!("{} {}", error.title, error.text)}><span role="alert">{ severity(Grade::Warning) }{ "scan failed" }</span></button>
                <button class="btn" id="scan" {title} onclick={begin}>{ "Scan again" }</button>
            </span>
        },
    }
}

/// Renders the scan button in the status bar of a small screen.
pub fn status(
    actor: &Actor,
    work: &OpenWork,
    values_panel: &ValuesPanel,
    cap: Option<u64>,
) -> Html {
    if work.opened.summary || work.sums.tensors == 0 {
        return html! {};
    }
    let (text, stops) = match &values_panel.scan {
        Task::Running(task) => {
            (format!("Stop at {} %", fmt::percent(task.now.done, task.now.total.max(1))), true)
        }
        Task::Done(done) if done.unread_bytes == 0 => return html! {},
        Task::Done(_) => ("Scan the rest".to_owned(), false),
        _ => ("Scan values".to_owned(), false),
    };
    let work = work.clone();
    let onclick = actor.on(move |actor, _: MouseEvent| match stops {
        true => actor.stop_scan(),
        false => start_scan(actor, &work, cap),
    });
    html! { <button class="textrow only-s scan-small" {onclick}><b>{ text }</b></button> }
}

/// Renders the icon of the result.
fn mark(work: &OpenWork) -> Html {
    let noticed = work.noticed.iter().flat_map(|noticed| noticed.iter());
    match noticed.map(|noticed| noticed.grade).max() {
        Some(Grade::Note) | None => tick_icon(),
        Some(grade) => severity(grade),
    }
}

fn gauge(actor: &Actor, now: &JobProgress, past: &[(u64, f64)], stopping: bool) -> Html {
    let stop = actor.on(move |actor, _: MouseEvent| actor.stop_scan());
    let (bytes, millis) = recent(now, past);
    let mut parts = vec![of_total(now.done, now.total)];
    if now.millis >= 500.0 && bytes > 0 {
        parts.push(fmt::rate(bytes, millis));
    }
    // Within the first two seconds an estimate is too unstable to show.
    if now.millis >= 2000.0 && bytes > 0 {
        let left = now.total.saturating_sub(now.done) as f64 * millis / bytes as f64;
        parts.push(format!("{} left", fmt::time_left(left)));
    }
    html! {
        <span class="scan now" id="scanning">
            { progress_bar(false, "Scanning values", (now.done, now.total)) }
            <span class="m scan-progress">{ parts.join(" \u{b7} ") }</span>
            <button class="btn" id="scan-stop" disabled={stopping} onclick={stop}>{ if stopping { "Stopping" } else { "Stop" } }</button>
        </span>
    }
}

/// Formats progress as `41.2 of 67.4 GB`, both in the unit of the total.
pub(super) fn of_total(done: u64, total: u64) -> String {
    let total_text = fmt::bytes(total);
    let Some((number, unit)) = total_text.split_once(' ') else { return total_text };
    let Ok(value) = number.parse::<f64>() else { return total_text };
    let places = number.split_once('.').map_or(0, |(_, places)| places.len());
    let part = if total == 0 { 0.0 } else { done as f64 / total as f64 * value };
    format!("{part:.places$} of {number} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_uses_the_unit_of_the_total() {
        assert_eq!(of_total(41_200_000_000, 67_380_000_000), "41.2 of 67.4 GB");
        assert_eq!(of_total(0, 500), "0 of 500 B");
        assert_eq!(of_total(500, 500), "500 of 500 B");
    }
}
