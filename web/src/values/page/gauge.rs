//! The control in the top bar that reads values: a button with a menu, then a progress bar in its
//! place, then the result.

use statelens_checkpoint::Grade;
use yew::prelude::*;

use crate::page::action_menu::ActionMenu;
use crate::page::marks::{severity, tick_icon};
use crate::page::model::Sheet;
use crate::page::model::actor::Actor;
use crate::page::running::{bytes_done, left, percent, progress_bar, recent};
use crate::protocol::job::JobKind;
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
    let menu = read_menu(work, cap);
    match &values_panel.scan {
        Task::Idle => html! {
            <span class="scan split"><button class="btn" id="scan" {title} onclick={begin}>{ "Read values" }</button>{ menu }</span>
        },
        Task::Running(task) => gauge(actor, &task.now, &task.past, values_panel.stopping),
        Task::Done(done) => html! {
            <span class="scan">
                <button class="textrow" id="scanned" onclick={show} title="Findings (F)"><span role="status">
                    { mark(work) }
                    if done.unread_bytes > 0 { { format!("stopped after {}", fmt::bytes(done.bytes)) } }
                    else if done.bytes == 0 { { "all values are read" } }
                    else { { format!("scanned {} in {}", fmt::bytes(done.bytes), fmt::seconds(done.millis)) } }
                </span></button>
                if done.unread_bytes > 0 { <button class="btn" id="scan" {title} onclick={begin}>{ format!("Read the rest \u{b7} {}", fmt::bytes(done.unread_bytes)) }</button> }
                { menu }
            </span>
        },
        Task::Failed(error) => html! {
            <span class="scan">
                <button class="textrow w-warn" id="scan-failed" onclick={show} title={format!("{} {}", error.title, error.text)}><span role="alert">{ severity(Grade::Warning) }{ "reading failed" }</span></button>
                <button class="btn" id="scan" {title} onclick={begin}>{ "Read again" }</button>
                { menu }
            </span>
        },
    }
}

/// Renders the menu of the ways to read all values.
fn read_menu(work: &OpenWork, cap: Option<u64>) -> Html {
    let work = work.clone();
    let statistics = Callback::from(move |actor: Actor| start_scan(&actor, &work, cap));
    let verify = Callback::from(|actor: Actor| actor.show(Some(Sheet::Task(JobKind::Verify))));
    let items = vec![
        ("Statistics of all values", "", statistics),
        ("Verify: also hashes and checksums", "V", verify),
    ];
    html! { <ActionMenu id="read-menu" text="" name="Ways to read the values" {items} /> }
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
        Task::Running(task) => (format!("Stop at {} %", percent(&task.now)), true),
        Task::Done(done) if done.unread_bytes == 0 => return html! {},
        Task::Done(_) => ("Read the rest".to_owned(), false),
        _ => ("Read values".to_owned(), false),
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
    let mut parts = vec![bytes_done(now.done, now.total)];
    if now.millis >= 500.0 && bytes > 0 {
        parts.push(fmt::rate(bytes, millis));
    }
    parts.extend(left(now, past).map(|left| format!("{left} left")));
    html! {
        <span class="scan now" id="scanning">
            { progress_bar(false, "Scanning values", (now.done, now.total)) }
            <span class="m scan-progress">{ parts.join(" \u{b7} ") }</span>
            <button class="btn" id="scan-stop" disabled={stopping} onclick={stop}>{ if stopping { "Stopping" } else { "Stop" } }</button>
        </span>
    }
}
