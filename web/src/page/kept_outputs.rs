//! The outputs that the page keeps in private storage, since it can't see when a download is over.

use yew::prelude::*;

use crate::page::model::actor::Actor;
use crate::protocol::ToWorker;
use crate::state::fmt;

/// Renders how many bytes are kept, with a button that removes them; nothing without outputs.
pub(crate) fn kept_outputs(actor: &Actor, bytes: u64) -> Html {
    if bytes == 0 {
        return html! {};
    }
    let free = actor.on(move |actor, _: MouseEvent| actor.request(&ToWorker::FreeOutputs));
    html! {
        <span class="kept-outputs" data-bytes={bytes.to_string()} title="Written files stay in the browser\u{2019}s storage until this page is closed, because a download may still read them">
            <span>{ format!("{} kept for downloads", fmt::bytes(bytes)) }</span>{ " " }
            <button class="textlink free-outputs" onclick={free} title="Removes the copies. Press it when the downloads are finished">{ "Free" }</button>
        </span>
    }
}
