//! Opening a URL: the dialog, `?url=`, and pasted URLs.

use std::cell::RefCell;

use statelens_checkpoint::{Error, Grade};
use statelens_remote::Address;
use statelens_remote::hub::{Endpoint, HubLocation};
use wasm_bindgen::{JsCast as _, JsValue};
use web_sys::{ClipboardEvent, Element};
use yew::prelude::*;

use crate::open::message::FetchConsent;
use crate::open::page::pasted::{PastedText, command};
use crate::page::fetch_limit::CAPS;
use crate::page::hooks::{use_focus_trap, use_window_event};
use crate::page::marks::{Copy, close_icon, severity, typed};
use crate::page::model::actor::Actor;
use crate::page::model::{PageModel, Sheet};
use crate::protocol::ToWorker;

thread_local! {
    /// The token for the Hugging Face Hub that was typed. It is kept in memory only, so it ends with
    /// the tab.
    static HUB_TOKEN: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Returns the token that was typed, if the address is one of the Hub; otherwise an empty text.
pub(crate) fn hub_token(url: &str) -> String {
    match HubLocation::is_hub(url, &Endpoint::default()) {
        true => HUB_TOKEN.with_borrow(Clone::clone),
        false => String::new(),
    }
}

impl Actor {
    /// Opens the checkpoint at an address, absolute or relative to the page. Asks for confirmation
    /// before a request to another site; the page's own site needs none.
    pub fn prompt_address(&self, text: &str) {
        if HubLocation::is_hub(text, &Endpoint::default()) {
            self.show_address_prompt(text.trim().to_owned().into());
            return;
        }
        let url = absolute(text);
        let here = origin();
        if Address::parse_prefix(&url).is_ok_and(|address| address.is_of(&here)) {
            // The command serves files of this computer, so there is no need to limit the transfer.
            let cap = if served().is_some() { CAPS[2].0 } else { CAPS[0].0 };
            self.open_address(&url, FetchConsent { cap, ..FetchConsent::default() });
        } else {
            self.show_address_prompt(url.into());
        }
    }

    /// Opens the checkpoint at an address. Asks for confirmation first if a file is being written.
    pub fn open_address(&self, url: &str, agreed: FetchConsent) {
        let url = url.to_owned();
        self.replace_open(move |actor| actor.open_address_now(&url, agreed));
    }

    /// Opens the checkpoint at an address without asking for confirmation.
    pub fn open_address_now(&self, url: &str, agreed: FetchConsent) {
        let open = ToWorker::OpenAddress { url: url.to_owned(), agreed, token: hub_token(url) };
        let address = AttrValue::from(url.to_owned());
        self.begin_session(&open, &JsValue::UNDEFINED, move |model| {
            model.begin_opening_address(address, agreed);
        });
    }
}

/// Opens the address given by `?url=` in the page's URL, when the page loads.
#[hook]
pub fn use_address_of_page(actor: &Actor) {
    let actor = actor.clone();
    use_effect_with((), move |()| {
        open_address_of_page(&actor);
    });
}

/// Opens the address given by `?url=` in the page's URL. Returns whether there is one.
pub fn open_address_of_page(actor: &Actor) -> bool {
    let search = web_sys::window().and_then(|window| window.location().search().ok());
    let named = search
        .and_then(|search| web_sys::UrlSearchParams::new_with_str(&search).ok())
        .and_then(|search| search.get("url"));
    if let Some(url) = &named {
        actor.prompt_address(url);
    }
    named.is_some()
}

/// Opens the dialog with an address, a path or the name of a repository that is pasted outside of
/// input fields.
#[hook]
pub fn use_pasted_address(model: &UseReducerHandle<PageModel>, actor: &Actor) {
    let model = model.clone();
    let listen = actor.on(move |actor, event: Event| {
        let in_field = event.target().and_then(|target| target.dyn_into::<Element>().ok());
        let in_field = in_field.is_some_and(|target| {
            matches!(target.tag_name().as_str(), "INPUT" | "TEXTAREA" | "SELECT")
        });
        if in_field || model.pending.is_some() {
            return;
        }
        let pasted = event.dyn_ref::<ClipboardEvent>().and_then(ClipboardEvent::clipboard_data);
        let text = pasted.and_then(|data| data.get_data("text/plain").ok()).unwrap_or_default();
        if let Some(pasted) = PastedText::of(&text) {
            event.prevent_default();
            match &pasted {
                PastedText::Address(address) => actor.prompt_address(address),
                // A path must not be resolved against the page's own site.
                PastedText::Path(_) | PastedText::Repository(_) => {
                    actor.show_address_prompt(pasted.prompt().into());
                }
            }
        }
    });
    use_window_event("paste", listen);
}

/// Returns the page's origin, such as `https://example.org`, as the browser reports it.
fn origin() -> String {
    web_sys::window().and_then(|window| window.location().origin().ok()).unwrap_or_default()
}

/// Returns the path, in the folder that the command serves, of the file at an address; `None` if it
/// is not a file of that folder.
pub(crate) fn served_path(address: &str) -> Option<String> {
    let path = address.strip_prefix(&absolute(&served()?))?;
    js_sys::decode_uri_component(path).ok().map(String::from)
}

/// Returns the base URL of the files that the serving command offers; `None` on any other host.
pub(crate) fn served() -> Option<AttrValue> {
    let document = web_sys::window()?.document()?;
    let mark = document.query_selector("meta[name=files]").ok()??;
    mark.get_attribute("content").map(AttrValue::from)
}

/// Returns an address as an absolute one: it may be relative to the page.
pub(crate) fn absolute(text: &str) -> String {
    let text = text.trim();
    let base = web_sys::window().and_then(|window| window.location().href().ok());
    let url = base.and_then(|base| web_sys::Url::new_with_base(text, &base).ok());
    url.map_or_else(|| text.to_owned(), |url| url.href())
}

/// Properties of the address dialog.
#[derive(Properties, PartialEq)]
pub struct AddressProps {
    /// The address to start with; may be empty.
    pub address: AttrValue,
}

/// The dialog for opening an address. It also asks for confirmation before the first request to the
/// server.
#[component]
pub fn AddressSheet(props: &AddressProps) -> Html {
    let actor = use_context::<Actor>();
    let node = use_node_ref();
    let text = use_state(|| props.address.to_string());
    use_focus_trap(&node);
    let Some(actor) = actor else { return html! {} };
    let close = actor.on(move |actor, _: MouseEvent| actor.show(None));
    let oninput = {
        let text = text.clone();
        Callback::from(move |event: InputEvent| {
            if let Some(value) = typed(&event) {
                text.set(value);
            }
        })
    };
    let parsed = parse_address(&text);
    let open = {
        let actor = actor.clone();
        let url = parsed.as_ref().ok().map(|server| server.url.clone());
        move || {
            if let Some(url) = &url {
                actor.open_address(url, FetchConsent { cap: CAPS[0].0, ..FetchConsent::default() });
            }
        }
    };
    let onclick = {
        let open = open.clone();
        Callback::from(move |_: MouseEvent| open())
    };
    let ontoken = Callback::from(move |event: InputEvent| {
        if let Some(value) = typed(&event) {
            HUB_TOKEN.set(value);
        }
    });
    let is_hub = parsed.as_ref().is_ok_and(|server| server.is_hub);
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
                <div ref={node} class="dlg address" id="address" role="dialog" aria-modal="true" aria-label="Open URL" tabindex="-1">
                    <header>
                        <h2>{ "Open URL" }</h2>
                        <button class="ico" aria-label="Close" title="Close (Esc)" onclick={close.clone()}>{ close_icon() }</button>
                    </header>
                    <div class="ask">
                        <label class="inp">
                            <input type="url" data-focus="true" value={(*text).clone()} {oninput} onkeydown={onkeydown.clone()} aria-label="URL of a checkpoint"
                                placeholder="https://…/model.safetensors" autocomplete="off" autocapitalize="off" spellcheck="false" />
                        </label>
                        { fetch_hint(&text, &parsed) }
                        if is_hub {
                            <label class="inp">
                                <input type="password" oninput={ontoken} {onkeydown} aria-label="Token" autocomplete="off"
                                    value={HUB_TOKEN.with_borrow(Clone::clone)}
                                    placeholder="Token, for private and gated repositories" />
                            </label>
                            <p>{ "A token goes to huggingface.co only, and is forgotten when this tab closes. Nothing else is sent." }</p>
                        }
                    </div>
                    <footer>
                        <span class="grow"></span>
                        <button class="btn" onclick={close}>{ "Cancel" }</button>
                        <button class="btn pri" id="address-open" {onclick} disabled={parsed.is_err()}>
                            { match &parsed {
                                Ok(server) => format!("Fetch from {}", server.host),
                                Err(_) => "Open".to_owned(),
                            } }
                        </button>
                    </footer>
                </div>
            </div>
        </>
    }
}

/// The server to fetch from.
struct FetchedServer {
    /// The address to open.
    url: String,
    host: String,
    /// Whether it is the Hugging Face Hub.
    is_hub: bool,
    /// Whether the connection is not encrypted.
    is_open_road: bool,
}

/// Parses the address, or returns why it can't be fetched.
fn parse_address(text: &str) -> Result<FetchedServer, String> {
    let failed = |error: Error| {
        let advice = error.next_step().map(crate::text::advice).unwrap_or_default();
        format!("{} {advice}", crate::text::sentence(error.what()))
    };
    let endpoint = Endpoint::default();
    if let Some(location) = HubLocation::parse(text, &endpoint) {
        let (url, host) = (location.map_err(failed)?.to_string(), endpoint.host().to_owned());
        return Ok(FetchedServer { url, host, is_hub: true, is_open_road: false });
    }
    let address = Address::parse_prefix(text).map_err(failed)?;
    if address.is_open_road() && origin().starts_with("https:") {
        return Err("Browsers block http requests from https pages. Use the https URL of the file, or the command.".into());
    }
    Ok(FetchedServer {
        url: address.to_string(),
        host: address.host().to_owned(),
        is_hub: false,
        is_open_road: address.is_open_road(),
    })
}

/// Explains what opening the address fetches, or why it can't be opened.
fn fetch_hint(text: &str, parsed: &Result<FetchedServer, String>) -> Html {
    if let (Err(_), Some(PastedText::Path(path))) = (parsed, PastedText::of(text)) {
        return html! {
            <>
                <p class="why" role="alert">{ severity(Grade::Warning) }<span>{ "A page can\u{2019}t open paths. Drop the file here, or run:" }</span></p>
                <div class="cmd"><code>{ command(path) }</code><Copy text={command(path)} label="command" /></div>
            </>
        };
    }
    match parsed {
        Err(_) if text.is_empty() => html! {
            <p>{ "URL of a checkpoint or of its shard index. The server must support range requests. Hugging Face links and hf://owner/name work." }</p>
        },
        Err(reason) => {
            html! { <p class="why" role="alert">{ severity(Grade::Warning) }<span>{ reason }</span></p> }
        }
        Ok(server) => html! {
            <>
                <p>{ "Fetches parts of the file from " }<b class="m">{ server.host.clone() }</b>
                    if server.is_hub { { " and from " }<b class="m">{ "hf.co" }</b>{ ", where it keeps large files" } }
                    { ": the structure, and the tensors that you open. Limit: 64 MB per action. \
                       Files that it refers to, such as shards, are fetched from the same folder." }</p>
                <p>{ "The server sees your IP address and which parts are requested, as with any download." }
                    if !server.is_hub { { " Nothing else is sent." } }</p>
                if server.is_open_road {
                    <p class="why">{ severity(Grade::Note) }<span>{ "The connection is not encrypted: others on the network can read and change the data." }</span></p>
                }
            </>
        },
    }
}

/// Returns the address dialog if it is to be shown.
pub fn sheet(model: &PageModel) -> Option<Html> {
    (model.sheet == Some(Sheet::Address))
        .then(|| html! { <AddressSheet address={model.address_prompt.clone()} /> })
}
