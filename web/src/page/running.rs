//! A running task: its progress bar, its numbers, and the button that stops it.

use yew::prelude::*;

use crate::page::marks::{cap, classes, when};
use crate::page::model::actor::Actor;
use crate::protocol::task::JobProgress;
use crate::state::fmt;

/// Gives content the role of a progress bar. Without a part of a total, the end is not known.
pub fn progress(class: Classes, label: &'static str, part: Option<(u64, u64)>, bar: Html) -> Html {
    let percent = part.map(|(done, total)| fmt::percent(done, total.max(1)).to_string());
    let (least, most) = (part.map(|_| "0"), part.map(|_| "100"));
    html! {
        <div {class} role="progressbar" aria-label={label} aria-valuemin={least} aria-valuemax={most} aria-valuenow={percent}>{ bar }</div>
    }
}

/// Renders a progress bar, which may be `thin`.
pub fn progress_bar(thin: bool, label: &'static str, (done, total): (u64, u64)) -> Html {
    let width = (done as f64 / total.max(1) as f64 * 100.0).min(100.0);
    let bar = html! { <i style={format!("--w:{width:.2}%")}></i> };
    progress(classes(&["prog", when(thin, "thin")]), label, Some((done, total)), bar)
}

/// Renders a task that runs within a screen: a bar, unless it is elsewhere, words, and a button that
/// stops it. The button has the id.
pub fn running_line(
    id: &'static str,
    bar: Option<(&'static str, (u64, u64))>,
    words: String,
    stop: Callback<MouseEvent>,
) -> Html {
    html! {
        <span class="going">
            if let Some((label, part)) = bar { { progress_bar(false, label, part) } }
            <span class="m dim">{ words }</span>
            <button class="textlink" {id} onclick={stop}>{ "Stop" }</button>
        </span>
    }
}

/// Renders a task that runs in its own sheet, with this id: its numbers, the content, and buttons to
/// leave the sheet and to cancel the task. `done` is the word for the bytes that are done.
pub fn running_sheet(
    actor: &Actor,
    (id, done): (&'static str, &'static str),
    (now, past): (&JobProgress, &[(u64, f64)]),
    cancel: Callback<MouseEvent>,
    content: Html,
) -> Html {
    let browse = actor.on(move |actor, _: MouseEvent| actor.show(None));
    html! {
        <>
            <div class="runbody" {id}>{ figures(done, now, past) }{ content }</div>
            <footer>
                <span class="grow dim">{ "Keep this tab open until it is done." }</span>
                <button class="btn" onclick={browse}>{ "Browse meanwhile" }</button>
                <button class="btn" id="cancel" onclick={cancel}>{ "Cancel " }{ cap("Esc") }</button>
            </footer>
        </>
    }
}

/// Renders a number with its label.
pub fn figure(label: &'static str, value: String) -> Html {
    html! { <div class="fig"><span class="lab">{ label }</span><span class="big">{ value }</span></div> }
}

/// Renders progress, rate and remaining time.
fn figures(done: &'static str, now: &JobProgress, past: &[(u64, f64)]) -> Html {
    let (bytes, millis) = recent(now, past);
    let rate = if now.millis < 250.0 { "\u{2026}".to_owned() } else { fmt::rate(bytes, millis) };
    let left = left(now, past).unwrap_or_else(|| "\u{2026}".to_owned());
    html! {
        <div class="runhead">
            { figure(done, bytes_done(now.done, now.total)) }
            { figure("rate", rate) }
            { figure("left", left) }
            <span class="grow"></span>
            { figure("done", format!("{} %", percent(now))) }
        </div>
    }
}

/// Returns the percentage that is done.
pub fn percent(now: &JobProgress) -> u32 {
    fmt::percent(now.done, now.total.max(1))
}

/// Formats progress as `41.2 of 67.4 GB`, both in the unit of the total.
pub fn bytes_done(done: u64, total: u64) -> String {
    let total_text = fmt::bytes(total);
    let Some((number, unit)) = total_text.split_once(' ') else { return total_text };
    let Ok(value) = number.parse::<f64>() else { return total_text };
    let places = number.split_once('.').map_or(0, |(_, places)| places.len());
    let part = if total == 0 { 0.0 } else { done as f64 / total as f64 * value };
    format!("{part:.places$} of {number} {unit}")
}

/// Formats the remaining time. Within the first two seconds an estimate is too unstable to show.
pub fn left(now: &JobProgress, past: &[(u64, f64)]) -> Option<String> {
    let (bytes, millis) = recent(now, past);
    let rest = now.total.saturating_sub(now.done) as f64;
    let is_known = now.millis >= 2000.0 && bytes > 0;
    is_known.then(|| fmt::time_left(rest * millis / bytes as f64))
}

/// Returns the bytes and milliseconds of the last few seconds, so that the rate reflects the
/// current speed and not the average since the start.
pub fn recent(now: &JobProgress, past: &[(u64, f64)]) -> (u64, f64) {
    let from =
        past.iter().find(|(_, millis)| now.millis - millis < 4000.0).copied().unwrap_or((0, 0.0));
    if now.millis - from.1 < 250.0 {
        (now.done, now.millis)
    } else {
        (now.done - from.0.min(now.done), now.millis - from.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_uses_the_unit_of_the_total() {
        assert_eq!(bytes_done(41_200_000_000, 67_380_000_000), "41.2 of 67.4 GB");
        assert_eq!(bytes_done(0, 500), "0 of 500 B");
        assert_eq!(bytes_done(500, 500), "500 of 500 B");
    }
}
