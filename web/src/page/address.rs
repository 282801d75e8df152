//! Opening from an address: the sheet that asks, and `?url=`.

use statelens_remote::Address;
use wasm_bindgen::JsValue;
use yew::prelude::*;

use crate::page::hooks::use_focus_trap;
use crate::page::marks::{cross, good, severity, typed};
use crate::page::model::actor::Actor;
use crate::page::model::{Action, PageModel, Sheet};
use crate::page::offers::served;
use crate::protocol::ToWorker;
use crate::protocol::error::ErrorKind;
use crate::protocol::finding::Severity;
use crate::protocol::opened::{Agreed, Fetched};
use crate::state::fmt;

/// What one action may fetch: at first, and what else can be chosen.
const CAPS: [(u64, &str); 3] =
    [(64_000_000, "64 MB"), (1_000_000_000, "1 GB"), (u64::MAX >> 11, "no limit")];

impl Actor {
    /// Opens the checkpoint at an address, absolute or relative to the page, and asks before
    /// another site is spoken to. The page's own site gave the page; it is asked at once.
    pub fn ask_address(&self, text: &str) {
        let url = absolute(text);
        let here = origin();
        if Address::parse(&url).is_ok_and(|address| address.is_of(&here)) {
            // What the command serves lies on this machine.
            let cap = if served().is_some() { CAPS[2].0 } else { CAPS[0].0 };
            self.open_address(&url, Agreed { cap, ..Agreed::default() });
        } else {
            self.act(Action::AskAddress(url.into()));
        }
    }

    /// Opens the checkpoint at an address.
    pub fn open_address(&self, url: &str, agreed: Agreed) {
        let url = url.to_owned();
        self.instead(move |actor| actor.open_address_now(&url, agreed));
    }

    /// Opens the checkpoint at an address, whatever is going on.
    pub fn open_address_now(&self, url: &str, agreed: Agreed) {
        let open = ToWorker::OpenAddress { url: url.to_owned(), agreed };
        let action = Action::OpenAddress(url.to_owned().into(), agreed);
        self.begin(&open, &JsValue::UNDEFINED, action);
    }
}

/// Opens what `?url=` in the page's own address names.
#[hook]
pub fn use_address_of_page(actor: &Actor) {
    let actor = actor.clone();
    use_effect_with((), move |()| {
        open_address_of_page(&actor);
    });
}

/// Opens what `?url=` in the page's own address names; false if it names nothing.
pub fn open_address_of_page(actor: &Actor) -> bool {
    let search = web_sys::window().and_then(|window| window.location().search().ok());
    let named = search
        .and_then(|search| web_sys::UrlSearchParams::new_with_str(&search).ok())
        .and_then(|search| search.get("url"));
    if let Some(url) = &named {
        actor.ask_address(url);
    }
    named.is_some()
}

/// The page's own site, as `https://example.org`; of a page from the disk, nothing.
fn origin() -> String {
    web_sys::window().and_then(|window| window.location().origin().ok()).unwrap_or_default()
}

fn absolute(text: &str) -> String {
    let text = text.trim();
    let base = web_sys::window().and_then(|window| window.location().href().ok());
    let url = base.and_then(|base| web_sys::Url::new_with_base(text, &base).ok());
    url.map_or_else(|| text.to_owned(), |url| url.href())
}

/// Asks for an address, and before the first request for whether to ask that server.
#[derive(Properties, PartialEq)]
pub struct AddressProps {
    /// The address that is asked about; may be empty.
    pub address: AttrValue,
}

/// Asks for an address.
#[component]
pub fn AddressSheet(props: &AddressProps) -> Html {
    let actor = use_context::<Actor>();
    let node = use_node_ref();
    let text = use_state(|| props.address.to_string());
    use_focus_trap(&node);
    let Some(actor) = actor else { return html! {} };
    let close = {
        let actor = actor.clone();
        Callback::from(move |_: MouseEvent| actor.act(Action::Show(None)))
    };
    let oninput = {
        let text = text.clone();
        Callback::from(move |event: InputEvent| {
            if let Some(value) = typed(&event) {
                text.set(value);
            }
        })
    };
    let asked = judged(&text);
    let open = {
        let actor = actor.clone();
        let url = asked.as_ref().ok().map(Address::to_string);
        move || {
            if let Some(url) = &url {
                actor.open_address(url, Agreed { cap: CAPS[0].0, ..Agreed::default() });
            }
        }
    };
    let onclick = {
        let open = open.clone();
        Callback::from(move |_: MouseEvent| open())
    };
    let onkeydown = Callback::from(move |event: KeyboardEvent| {
        if event.key() == "Enter" {
            event.prevent_default();
            open();
        }
    });
    html! {
        <>
            <div class="scrim" onclick={close.clone()}></div>
            <div class="center">
                <div ref={node} class="dlg address" id="address" role="dialog" aria-modal="true" aria-label="Open address" tabindex="-1">
                    <header>
                        <h2>{ "Open address" }</h2>
                        <button class="ico" aria-label="Close" title="Close (Esc)" onclick={close.clone()}>{ cross() }</button>
                    </header>
                    <div class="ask">
                        <label class="inp">
                            <input type="url" value={(*text).clone()} {oninput} {onkeydown} aria-label="Address of a checkpoint"
                                placeholder="https://huggingface.co/…/model.safetensors" autocomplete="off" autocapitalize="off" spellcheck="false" />
                        </label>
                        { about(&text, &asked) }
                    </div>
                    <footer>
                        <span class="grow"></span>
                        <button class="btn" onclick={close}>{ "Cancel" }</button>
                        <button class="btn pri" id="address-open" {onclick} disabled={asked.is_err()}>
                            { match &asked {
                                Ok(address) => format!("Ask {}", address.host()),
                                Err(_) => "Open".to_owned(),
                            } }
                        </button>
                    </footer>
                </div>
            </div>
        </>
    }
}

/// The address, if it can be asked for.
fn judged(text: &str) -> Result<Address, String> {
    let address = Address::parse(text).map_err(|error| {
        let advice = error.next_step().unwrap_or_default();
        format!("{} {advice}", crate::text::sentence(error.what()))
    })?;
    if address.is_open_road() && origin().starts_with("https:") {
        return Err("A page that came by https can\u{2019}t ask servers by plain http: the browser forbids it. Use the https address of the file, or the command.".into());
    }
    Ok(address)
}

/// What opening the address means, or why it can't be opened.
fn about(text: &str, asked: &Result<Address, String>) -> Html {
    match asked {
        Err(_) if text.is_empty() => html! {
            <p>{ "The address of a checkpoint, or of the index of its shards, on a server that answers range requests. Links to files on Hugging Face are understood." }</p>
        },
        Err(why) => {
            html! { <p class="why" role="alert">{ severity(Severity::Warning) }<span>{ why }</span></p> }
        }
        Ok(address) => html! {
            <>
                <p>{ "Parts of the file are fetched from " }<b class="m">{ address.host().to_owned() }</b>
                    if address.leads_on() { { " and from the servers at " }<b class="m">{ "hf.co" }</b>{ " where it keeps large files" } }
                    { ", as many as are needed to show what is in it and what you look at: not more than 64 MB for one action. \
                       If it names further files, these are fetched from beside it." }</p>
                <p>{ "The server learns which parts you ask for, and from where, as with any download. Nothing else is sent." }</p>
                if address.is_open_road() {
                    <p class="why">{ severity(Severity::Note) }<span>{ "The connection is not encrypted: others on the way can see and change what comes." }</span></p>
                }
            </>
        },
    }
}

/// What has been fetched and from where, and how much may be, for the bar at the bottom.
pub fn fetched(actor: &Actor, fetched: &Fetched, most: u64) -> Html {
    let actor = actor.clone();
    let onchange = Callback::from(move |event: Event| {
        let select = event.target_dyn_into::<web_sys::HtmlSelectElement>();
        if let Some((cap, _)) = select.and_then(|select| CAPS.get(select.selected_index() as usize))
        {
            actor.ask(&ToWorker::Allow { cap: *cap });
            actor.act(Action::Allow(*cap));
        }
    });
    let via = if fetched.via.is_empty() || fetched.via == fetched.host {
        String::new()
    } else {
        format!(" (through {})", fetched.via)
    };
    let how = if fetched.whole {
        "as a whole: the server gives no parts".to_owned()
    } else {
        format!("in {}", fmt::plural(fetched.requests, "request"))
    };
    html! {
        <>
            <span id="fetched" class="opt">{ good() }
                { format!("{} fetched from {}{via} {how}", fmt::bytes(fetched.bytes), fetched.host) }</span>
            <label class="opt limit">{ "at most" }
                <select {onchange} aria-label="How much one action may fetch">
                    { for CAPS.iter().map(|(cap, name)| html! {
                        <option selected={*cap == most}>{ *name }</option>
                    }) }
                </select>{ "at a time" }</label>
        </>
    }
}

/// A way to go on after an address could not be opened: again, with a larger limit if that was
/// reached, or to where its server leads if that was not agreed to.
pub fn again(actor: &Actor, address: &AttrValue, agreed: Agreed, kind: ErrorKind) -> Html {
    let mut next = agreed;
    let mut hint = ("The server may answer now", "Try again".to_owned());
    match CAPS.iter().find(|(larger, _)| *larger > agreed.cap) {
        Some((larger, name)) if kind == ErrorKind::FetchCap => {
            next.cap = *larger;
            hint = ("More may be fetched", format!("Allow {name}"));
        }
        _ if kind == ErrorKind::Refused && !agreed.follow => {
            next.follow = true;
            hint = ("You trust it to choose another server", "Follow it".to_owned());
        }
        _ => {}
    }
    let (actor, address) = (actor.clone(), address.clone());
    let onclick = Callback::from(move |_: MouseEvent| actor.open_address(&address, next));
    html! { <div class="hint"><span>{ hint.0 }</span><button class="btn" id="again" {onclick}>{ hint.1 }</button></div> }
}

/// The sheet, if it is asked for.
pub fn sheet(model: &PageModel) -> Option<Html> {
    (model.sheet == Some(Sheet::Address))
        .then(|| html! { <AddressSheet address={model.asking.clone()} /> })
}
