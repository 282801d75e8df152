//! Saving the numbers of a tensor, or of a slice of it, as a file of their own.

use yew::prelude::*;

use crate::page::model::Action;
use crate::page::model::actor::Actor;
use crate::page::naming::key_name;
use crate::protocol::ToWorker;
use crate::protocol::looking::{LookingRequest, Take, TakeAs};
use crate::state::fmt;
use crate::state::instrument::Taking;

/// What is saved.
#[derive(Properties, PartialEq)]
pub(super) struct SaveAsProps {
    /// The row of the tensor.
    pub(super) row: u32,
    /// Its key, with the slice of it.
    pub(super) title: AttrValue,
    /// The index of a slice; none of the whole tensor.
    #[prop_or_default]
    pub(super) leading: Vec<u64>,
    /// Its dtype.
    pub(super) dtype: AttrValue,
    /// Formats of the whole tensor that the sheet for converting writes: ids and extensions.
    #[prop_or_default]
    pub(super) targets: Vec<(String, String)>,
    /// How far one is.
    pub(super) taking: Taking,
}

/// Whether NumPy has no such dtype, so that numbers are offered as float32.
fn is_short(dtype: &str) -> bool {
    dtype == "bfloat16" || dtype.starts_with("float8") || dtype.starts_with("float4")
}

/// The buttons.
#[component]
pub(super) fn SaveAs(props: &SaveAsProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let upcast = use_state(|| false);
    let short = is_short(&props.dtype);
    let single = short && *upcast;
    let take = |kind: TakeAs, extension: &'static str| {
        let (actor, row, leading) = (actor.clone(), props.row, props.leading.clone());
        let name = key_name(&props.title, extension);
        let single = single || short && kind == TakeAs::Npy;
        let onclick = Callback::from(move |_: MouseEvent| {
            let (leading, name) = (leading.clone(), name.clone());
            let ask = Take { row, leading, kind, single, name };
            actor.ask(&ToWorker::Looking(LookingRequest::Take(Some(ask))));
        });
        html! { <button class="textlink" {onclick}>{ format!(".{extension}") }</button> }
    };
    let onchange = {
        let upcast = upcast.clone();
        Callback::from(move |_: Event| upcast.set(!*upcast))
    };
    html! {
        <div class="saveas lab" role="group" aria-label="Save these values">{ "save as " }
            { for props.targets.iter().map(|(id, extension)| {
                let (actor, row, to) = (actor.clone(), props.row, id.clone());
                let onclick = Callback::from(move |_: MouseEvent| {
                    actor.act(Action::SaveKey(row, to.clone(), single));
                });
                html! { <button class="textlink" {onclick}>{ format!(".{extension}") }</button> }
            }) }
            if props.targets.is_empty() { { take(TakeAs::Npy, "npy") } }
            { take(TakeAs::Csv, "csv") }
            { take(TakeAs::Raw, "raw") }
            if short {
                <label class="upcast" title={format!("NumPy has no {}: for it numbers become float32 in any case", props.dtype)}><input type="checkbox" class="cb" checked={*upcast} {onchange} />{ "as float32" }</label>
            }
            { how_far(&actor, &props.taking) }
        </div>
    }
}

fn how_far(actor: &Actor, taking: &Taking) -> Html {
    match taking {
        Taking::No => html! {},
        Taking::Now(done, total) => {
            let actor = actor.clone();
            let stop = Callback::from(move |_: MouseEvent| {
                actor.ask(&ToWorker::Looking(LookingRequest::Take(None)));
                actor.instrument(|it| it.taking = Taking::No);
            });
            let percent = fmt::percent(*done, (*total).max(1));
            html! { <span role="status">{ format!(" {percent} % ") }<button class="textlink" onclick={stop}>{ "Stop" }</button></span> }
        }
        Taking::Failed(error) => {
            html! { <span class="w-warn" role="alert">{ format!("{} {}", error.title, error.text) }</span> }
        }
    }
}
