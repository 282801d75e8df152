//! The limit on how many bytes one action may fetch: shown in the status bar, and raised on request.

use statelens_checkpoint::Grade;
use web_sys::Event;
use yew::prelude::*;

use crate::open::message::{FetchConsent, FetchStats};
use crate::page::hooks::use_focus_trap;
use crate::page::marks::{close_icon, severity, tick_icon};
use crate::page::model::actor::Actor;
use crate::protocol::ToWorker;
use crate::protocol::error::ErrorKind;
use crate::state::fmt;

/// Choices of how many bytes one action may fetch, with their names; the first is the default.
pub const CAPS: [(u64, &str); 3] =
    [(64_000_000, "64 MB"), (1_000_000_000, "1 GB"), (u64::MAX >> 11, "no limit")];

impl Actor {
    /// Sets how many bytes one action may fetch.
    pub fn allow(&self, cap: u64) {
        self.request(&ToWorker::Allow { cap });
        self.update(move |model| model.agreed.cap = cap);
    }
}

/// Renders, for the status bar, how much was fetched from where, with a menu for the limit.
pub fn fetched(actor: &Actor, fetched: &FetchStats, most: u64) -> Html {
    let onchange = actor.on(move |actor, event: Event| {
        let select = event.target_dyn_into::<web_sys::HtmlSelectElement>();
        if let Some((cap, _)) = select.and_then(|select| CAPS.get(select.selected_index() as usize))
        {
            actor.allow(*cap);
        }
    });
    let via = if fetched.via.is_empty() || fetched.via == fetched.host {
        String::new()
    } else {
        format!(" (through {})", fetched.via)
    };
    let how = if fetched.without_ranges {
        "as a whole (no range support)".to_owned()
    } else {
        format!("in {}", fmt::plural(fetched.requests, "request"))
    };
    html! {
        <>
            <span id="fetched" class="opt">{ tick_icon() }
                { format!("{} fetched from {}{via} {how}", fmt::bytes(fetched.bytes), fetched.host) }</span>
            <label class="opt limit">{ "fetch limit per action:" }
                <select id="fetch-limit" {onchange} aria-label="Fetch limit per action">
                    { for CAPS.iter().map(|(cap, name)| html! {
                        <option selected={*cap == most}>{ *name }</option>
                    }) }
                </select></label>
        </>
    }
}

/// Returns the smallest limit that allows `needed` bytes, and its name.
fn limit_for(needed: u64) -> (u64, &'static str) {
    CAPS.into_iter().find(|(cap, _)| *cap >= needed).unwrap_or(CAPS[CAPS.len() - 1])
}

/// Returns the label of the button that raises the limit.
fn raise_to(name: &str) -> String {
    if name == CAPS[2].1 { "Remove the limit".to_owned() } else { format!("Raise to {name}") }
}

/// Properties of a notice that the limit is too low.
#[derive(Properties, PartialEq)]
pub struct LimitProps {
    /// Number of bytes needed.
    pub needed: u64,
    /// Number of bytes that one action may fetch.
    pub cap: u64,
}

impl LimitProps {
    fn text(&self, what: &str) -> String {
        let (needed, cap) = (fmt::bytes(self.needed), fmt::bytes(self.cap));
        format!("{what} needs {needed}; the limit is {cap}.")
    }
}

/// A notice that the limit is too low, with a button that raises it.
#[component]
pub fn RaiseLimit(props: &LimitProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let (cap, name) = limit_for(props.needed);
    let onclick = Callback::from(move |_: MouseEvent| actor.allow(cap));
    html! {
        <span class="over-limit" role="status">{ severity(Grade::Note) }<span>{ props.text("Reading everything") }</span>
            <button class="btn" id="raise-limit" {onclick}>{ raise_to(name) }</button></span>
    }
}

/// The dialog that asks for a higher limit before a scan.
#[component]
pub fn LimitDialog(props: &LimitProps) -> Html {
    let node = use_node_ref();
    use_focus_trap(&node);
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let close = actor.on(move |actor, _: MouseEvent| actor.show(None));
    let (cap, name) = limit_for(props.needed);
    let go = Callback::from(move |_: MouseEvent| {
        actor.allow(cap);
        actor.show(None);
        actor.scan();
    });
    html! {
        <>
            <div class="scrim" onclick={close.clone()}></div>
            <div class="center">
                <div ref={node} class="dlg address" id="limit" role="dialog" aria-modal="true" aria-label="Fetch limit" tabindex="-1">
                    <header><h2>{ "Fetch limit" }</h2>
                        <button class="ico" aria-label="Close" title="Close (Esc)" onclick={close.clone()}>{ close_icon() }</button></header>
                    <div class="ask"><p>{ props.text("Scanning") }</p></div>
                    <footer>
                        <span class="grow"></span>
                        <button class="btn" onclick={close}>{ "Cancel" }</button>
                        <button class="btn pri" id="raise-and-scan" data-focus="true" onclick={go}>{ format!("{} and scan", raise_to(name)) }</button>
                    </footer>
                </div>
            </div>
        </>
    }
}

/// Renders a button to try again after an address could not be opened: with a larger limit if the
/// limit was reached, following the redirect if the user has not agreed to that yet, or with another
/// address or a token if the Hub refused.
pub fn retry_button(
    actor: &Actor,
    address: &AttrValue,
    agreed: FetchConsent,
    kind: ErrorKind,
) -> Html {
    let edit = kind == ErrorKind::Hub;
    let mut next = agreed;
    let mut hint = ("The server may be available again", "Try again".to_owned());
    match CAPS.iter().find(|(larger, _)| *larger > agreed.cap) {
        Some((larger, name)) if kind == ErrorKind::FetchCap => {
            next.cap = *larger;
            hint = ("Raise the fetch limit", format!("Allow {name}"));
        }
        _ if kind == ErrorKind::Refused && !agreed.follow => {
            next.follow = true;
            hint = ("Follow the redirect if you trust this server", "Follow it".to_owned());
        }
        _ if edit => hint = ("Correct the address, or enter a token", "Edit\u{2026}".to_owned()),
        // The server sends the same file again.
        _ if kind != ErrorKind::Io => return html! {},
        _ => {}
    }
    let address = address.clone();
    let onclick = actor.on(move |actor, _: MouseEvent| match edit {
        true => actor.show_address_prompt(address.clone()),
        false => actor.open_address(&address, next),
    });
    html! { <div class="hint"><span>{ hint.0 }</span><button class="btn" id="again" {onclick}>{ hint.1 }</button></div> }
}
