//! Interrupting running jobs when something else is opened or the page is left: asks before a file
//! that is being written is lost, and reports which jobs were stopped. Also the note on where bytes
//! come from.

use statelens_checkpoint::Grade;
use statelens_remote::Address;
use wasm_bindgen::prelude::*;
use web_sys::Event;
use yew::prelude::*;

use crate::convert::state::Conversion;
use crate::messages::set;
use crate::page::hooks::use_focus_trap;
use crate::page::marks::severity;
use crate::page::model::actor::Actor;
use crate::page::model::{PageModel, PendingAction, Screen, StopReason};
use crate::protocol::ToWorker;
/// Renders the question whether the running write may be stopped, if an action waits for it.
pub fn dialog(model: &PageModel, actor: &Actor) -> Html {
    let Some(pending) = &model.pending else { return html! {} };
    let convert = model.convert.as_ref();
    let name = convert.map(|convert| convert.options.name.clone()).unwrap_or_default();
    let writes = convert.is_some_and(Conversion::is_running);
    html! { <StopDialog actor={actor.clone()} pending={pending.clone()} {name} {writes} /> }
}

#[derive(Properties, PartialEq)]
struct StopProps {
    actor: Actor,
    pending: PendingAction,
    /// Name of the file that is being written.
    name: AttrValue,
    /// Whether it is still being written; false once it is complete.
    writes: bool,
}

#[component]
fn StopDialog(props: &StopProps) -> Html {
    let node = use_node_ref();
    use_focus_trap(&node);
    let stay = props.actor.on(move |actor, _: MouseEvent| actor.confirm(None));
    let go = {
        let pending = props.pending.clone();
        props.actor.on(move |actor, _: MouseEvent| {
            actor.confirm(None);
            // Opening something stops the write, and reports that.
            pending.go(actor);
        })
    };
    let (text, keep, stop) = match (props.writes, props.pending.reason) {
        (true, StopReason::Open) => (
            "The output is not complete. If you open something else now, writing stops and the partial output is removed.",
            "Keep writing",
            "Stop and open",
        ),
        (true, StopReason::Leave) => (
            "The output is not complete. If you close the checkpoint now, writing stops and the partial output is removed.",
            "Keep writing",
            "Stop and close",
        ),
        (true, StopReason::Stop) => (
            "The output is not complete. If you stop now, the partial output is removed.",
            "Keep writing",
            "Stop",
        ),
        (false, StopReason::Open) => ("It is complete.", "Stay", "Open"),
        (false, StopReason::Leave) => ("It is complete now.", "Stay", "Close"),
        (false, StopReason::Stop) => ("It is complete now.", "Stay", "OK"),
    };
    html! {
        <>
            <div class="scrim above" onclick={stay.clone()}></div>
            <div class="center above">
                <div ref={node} class="dlg" id="stop" role="alertdialog" aria-modal="true" aria-labelledby="stop-title" tabindex="-1">
                    <header><h2 id="stop-title">{ if props.writes { format!("{} is being written", props.name) } else { format!("{} is written", props.name) } }</h2></header>
                    <div class="ask"><p>{ text }</p></div>
                    <footer>
                        <span class="grow"></span>
                        <button class="btn" id="stop-and-open" onclick={go}>{ stop }</button>
                        <button class="btn pri" id="keep-writing" onclick={stay}>{ keep }</button>
                    </footer>
                </div>
            </div>
        </>
    }
}

/// Renders the notice until the user dismisses it.
pub fn notice(model: &PageModel, actor: &Actor) -> Html {
    let read = actor.on(move |actor, _: MouseEvent| actor.update(|model| model.notice = None));
    // The live region is always present: screen readers announce only changes in existing regions.
    html! {
        <div role="status">
            if let Some(notice) = &model.notice {
                <aside class="news" id="notice">
                    { severity(Grade::Note) }<span>{ notice.clone() }</span>
                    <button class="btn" onclick={read}>{ "OK" }</button>
                </aside>
            }
        </div>
    }
}

/// Renders the note that bytes are fetched from a server; nothing for local files, of which nothing
/// leaves the page, as the first screen says.
pub fn privacy(host: Option<&str>) -> Html {
    match host {
        Some(host) => html! {
            <span class="opt" id="privacy">{ severity(Grade::Note) }{ format!("fetching from {host}") }</span>
        },
        None => html! {},
    }
}

/// Returns the host of an address.
pub fn host(address: &str) -> String {
    Address::parse_prefix(address)
        .map_or_else(|_| address.to_owned(), |address| address.host().to_owned())
}

/// Lets the worker close a checkpoint that is no longer shown, which stops its jobs.
#[hook]
pub fn use_close_unshown(model: &PageModel, actor: &Actor) {
    let left = matches!(model.screen, Screen::Start | Screen::Run) && model.work.is_none();
    let actor = actor.clone();
    use_effect_with((left, model.session), move |(left, session)| {
        if *left && *session > 0 {
            actor.request(&ToWorker::Close);
        }
    });
}

/// Makes the browser ask for confirmation before the page is left while a file is being written.
#[hook]
pub fn use_unload_guard(model: &PageModel) {
    let writes = model.convert.as_ref().is_some_and(Conversion::is_running);
    use_effect_with(writes, |writes| {
        let request = Closure::<dyn FnMut(Event)>::new(|event: Event| {
            event.prevent_default();
            // For browsers that ignore `preventDefault` here.
            set(&event, "returnValue", &true.into());
        });
        // The listener is added only while it is needed, since it disables the back/forward cache.
        let window = web_sys::window().filter(|_| *writes);
        let listener = request.as_ref().unchecked_ref::<js_sys::Function>().clone();
        if let Some(window) = &window {
            let _ = window.add_event_listener_with_callback("beforeunload", &listener);
        }
        move || {
            if let Some(window) = window {
                let _ = window.remove_event_listener_with_callback("beforeunload", &listener);
            }
            drop(request);
        }
    });
}
