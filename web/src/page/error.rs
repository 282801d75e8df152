//! The error screen for a file that could not be opened: the error, its place, and the next steps.

use std::rc::Rc;

use statelens_checkpoint::Grade;
use yew::prelude::*;

use crate::checkpoint_list::page::RailPane;
use crate::checkpoint_list::state::Rail;
use crate::open::message::FetchConsent;
use crate::page::drop::DroppedFile;
use crate::page::fetch_limit;
use crate::page::marks::{Copy, cap, logo, prose, severity};
use crate::page::model::actor::Actor;
use crate::protocol::error::{ErrorKind, ErrorText};
use crate::state::fmt;
use crate::text::place;

/// The checkpoints of a drop, its files, and the index of the one that could not be opened.
pub type DroppedRail = (Rc<Rail>, Rc<Vec<DroppedFile>>, Option<u32>);

/// The content of the error screen.
pub struct OpenFailure<'a> {
    pub error: &'a ErrorText,
    /// Name of the file.
    pub name: String,
    /// Size of the file in bytes.
    pub size: u64,
    /// Number of files dropped together with it.
    pub others: usize,
    /// If the drop has several checkpoints: these, the dropped files, and the index of the file
    /// that could not be opened.
    pub rail: Option<DroppedRail>,
    /// The address, if the file is remote.
    pub address: Option<&'a AttrValue>,
    /// The limits that the user agreed to for it.
    pub agreed: FetchConsent,
    /// Opens the file with higher limits, if a limit was reached.
    pub raise: Option<Callback<MouseEvent>>,
    /// The button that checks the folder.
    pub check: Html,
}

/// Returns the heading for a kind of error.
pub fn kind_word(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotACheckpoint => "Not a checkpoint",
        ErrorKind::Damaged => "Damaged",
        ErrorKind::Unsupported => "Not supported",
        ErrorKind::Limit | ErrorKind::FetchCap => "Over a limit",
        ErrorKind::Refused | ErrorKind::Falsified => "Refused",
        ErrorKind::Hub => "No access",
        ErrorKind::Io => "Could not be read",
        ErrorKind::Unwritten => "Could not be written",
    }
}

/// Renders an error within a sheet: its title, text, place and next steps, optionally with the
/// commands.
pub fn error_body(error: &ErrorText, class: &'static str, commands: bool) -> Html {
    html! {
        <>
            { kind(error) }
            <h3 {class}>{ prose(&error.title) }</h3>
            { about(error) }
            { for error.next.iter().map(|(text, command)| html! {
                <p>{ prose(text) }
                    if commands && !command.is_empty() { <span class="cmd"><code>{ command }</code><Copy text={command.clone()} label="command" /></span> }</p>
            }) }
        </>
    }
}

/// Renders an error within a screen: its title and text.
pub fn short_error(error: &ErrorText) -> Html {
    html! {
        <>
            <p class="w-warn" role="alert">{ prose(&error.title) }</p>
            if !error.text.is_empty() { <p class="dim">{ prose(&error.text) }</p> }
        </>
    }
}

fn kind(error: &ErrorText) -> Html {
    html! { <div class="kindline">{ severity(Grade::Warning) }<span class="w-warn">{ kind_word(error.kind) }</span></div> }
}

fn about(error: &ErrorText) -> Html {
    html! {
        <>
            if !error.text.is_empty() { <p class="mid-ink">{ prose(&error.text) }</p> }
            if !error.file.is_empty() { <p class="m dim">{ place(error) }</p> }
        </>
    }
}

/// Formats an error as a plain-text report for copying.
pub fn report(error: &ErrorText, name: &str, size: u64) -> String {
    let mut out = format!("{}: {}\n{}\n", kind_word(error.kind), error.title, error.text);
    for (label, text) in [("file", format!("{name}, {size} bytes")), ("where", place(error))] {
        if !text.is_empty() {
            out.push_str(&format!("{label}: {text}\n"));
        }
    }
    out.push_str(&format!("Statelens {}\n", env!("CARGO_PKG_VERSION")));
    out
}

pub fn error_screen(actor: &Actor, failed: &OpenFailure<'_>) -> Html {
    let error = failed.error;
    let choose = actor.on(move |actor, _: MouseEvent| actor.choose_files());
    let retry_button = actor.clone();

    let back = actor.on(move |actor, _: MouseEvent| actor.update(|model| model.leave()));
    html! {
        <div class="solo" id="error">
            <header class="top">
                <button class="home" onclick={back} aria-label="Statelens: back to the first screen">{ logo() }</button>
                <span class="vr"></span>
                <span class="name">{ failed.name.clone() }</span>
                if failed.address.is_none() && !failed.name.is_empty() { <span class="m dim only-l">{ format!("{} bytes", fmt::exact(failed.size)) }</span> }
                <span class="acts"><button class="btn" onclick={choose.clone()}>{ "Open files " }{ cap("O") }</button></span>
            </header>
            <main class="body"><div role="alert">
                { kind(error) }
                <h1>{ prose(&error.title) }</h1>
                { about(error) }
                if !error.lines.is_empty() {
                    <pre class="pre">{ for error.lines.iter().enumerate().map(|(at, line)| html! {
                        <><span class="ln">{ at + 1 }</span>{ format!("{line}\n") }</>
                    }) }</pre>
                }
                <div class="hints">
                    { for error.next.iter().map(|(text, command)| html! {
                        <div class="hint">
                            <span>{ prose(text) }</span>
                            if !command.is_empty() {
                                <span class="cmd"><code>{ command }</code><Copy text={command.clone()} label="command" /></span>
                            }
                        </div>
                    }) }
                    if let Some(address) = failed.address {
                        { fetch_limit::retry_button(&retry_button, address, failed.agreed, error.kind) }
                    }
                    { raise_limits_offer(failed.raise.clone()) }
                    if failed.others > 1 {
                        <div class="hint"><span>{ "See what else is wrong with the folder" }</span>{ failed.check.clone() }</div>
                    }
                    <div class="hint"><span>{ if matches!(error.kind, ErrorKind::NotACheckpoint | ErrorKind::Unsupported) { "Try another file" } else { "Try another copy" } }</span>
                        <button class="btn" id="open-copy" onclick={choose}>{ "Open\u{2026}" }</button></div>
                    <div class="hint"><span>{ "Think this is a mistake?" }</span>
                        <span class="copyline">{ "Copy a report" }
                            <Copy text={report(error, &failed.name, failed.size)} label="report" /></span></div>
                </div>
                if let Some((rail, files, at)) = &failed.rail {
                    <div class="error-rail"><RailPane rail={rail.clone()} files={files.clone()} at={*at} /></div>
                } else if failed.others > 1 {
                    <p class="dim">{ format!("1 of the {} files you dropped.", failed.others) }</p>
                }
            </div></main>
        </div>
    }
}

/// Renders the offer to open the file with ten times the limits.
pub fn raise_limits_offer(raise: Option<Callback<MouseEvent>>) -> Html {
    raise.map_or_else(Html::default, |onclick| {
        html! {
            <div class="hint"><span>{ "If you trust the file, open it with limits ten times as high. This may take several GB of memory and a few minutes; Esc stops it" }</span>
                <button class="btn" id="raise" {onclick}>{ "Open it with higher limits" }</button></div>
        }
    })
}
