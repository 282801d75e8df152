//! The fields of the convert sheet for a model family, from top to bottom.

use statelens_checkpoint::Grade;
use statelens_formats::Choice;
use yew::prelude::*;

use crate::convert::state::Conversion;
use crate::family::message::FamilyReply;
use crate::family::page::{config, rules};
use crate::page::controls::choices;
use crate::page::marks::{prose, severity};
use crate::page::model::actor::Actor;
use crate::state::work::OpenWork;

/// Renders the options for a model family and their results.
pub fn fields(actor: &Actor, work: &OpenWork, convert: &Conversion) -> Html {
    let Some(reply) = &convert.family else { return html! {} };
    let shown = reply.shown.as_ref();
    html! {
        <>
            { config::config_choice(actor, work, convert, reply) }
            { written(actor, convert) }
            { rules::keys(actor, convert, reply) }
            if let Some(configs) = shown.and_then(|shown| shown.config.as_ref()) { { config::side_by_side(configs) } }
            { notes(reply) }
        </>
    }
}

/// Renders the choice of file format and shard size for a model folder.
fn written(actor: &Actor, convert: &Conversion) -> Html {
    if !convert.options.family.is_folder() {
        return html! {};
    }
    let choice = |id, name| Choice { id, name };
    let kinds = [choice("safetensors", "safetensors"), choice("torch", "PyTorch .bin")];
    let sizes = [choice("10GB", "10 GB"), choice("5GB", "5 GB"), choice("2GB", "2 GB")];
    html! {
        <>
            { choices(actor, "Files", "file format", &kinds, Some(&convert.options.to),
                |convert, id| convert.options.to = id.unwrap_or("safetensors".into())) }
            { choices(actor, "Shards", "files with at most this many bytes of tensors, and an index", &sizes,
                convert.options.shard_size.as_deref(), |convert, id| convert.options.shard_size = id) }
        </>
    }
}

fn notes(reply: &FamilyReply) -> Html {
    let notes = reply.shown.as_ref().map_or(&[][..], |shown| &shown.notes);
    if notes.is_empty() {
        return html! {};
    }
    html! {
        <div class="fs"><span class="lab">{ "Notes" }</span><div>
            <ul class="checks">{ for notes.iter().map(|note| html! {
                <li>{ severity(Grade::Note) }<span>{ prose(note) }</span></li>
            }) }</ul>
        </div></div>
    }
}
