//! The rows picked in the table: their totals, and the actions on them.

pub mod touch;

use yew::prelude::*;

use crate::compare::page::compare_rows;
use crate::convert::state::{extension, target};
use crate::page::model::actor::Actor;
use crate::state::fmt;
use crate::state::work::OpenWork;

/// Formats that can hold several tensors.
const KINDS: [&str; 3] = ["npz", "safetensors", "torch"];

/// Renders the strip with totals and actions while rows are picked.
pub(crate) fn strip(actor: &Actor, work: &OpenWork, oncompare: &Callback<()>) -> Html {
    let count = work.picked.count();
    if count == 0 {
        return html! {};
    }
    let sums = work.picked.sums(&work.rows);
    let keys = fmt::plural(count as u64, "key");
    let mut text = keys.clone();
    if sums.tensors > 0 {
        let params = fmt::count(sums.params);
        text += &format!(" \u{b7} {params} params \u{b7} {}", fmt::bytes(sums.bytes));
    }
    let convert = |to: Option<&'static str>| {
        actor.on(move |actor, _: MouseEvent| {
            let to = to.map(str::to_owned);
            actor.update(move |model| model.save_picked(to));
        })
    };
    let clear = actor.on(move |actor, _: MouseEvent| actor.work(|work| work.picked.clear()));
    let pair = match work.picked.rows().collect::<Vec<u32>>()[..] {
        [a, b] if sums.tensors == 2 => Some((a, b)),
        _ => None,
    };
    let compare = actor.on(move |actor, _: MouseEvent| {
        if let Some((a, b)) = pair {
            compare_rows(actor, a, b);
        }
    });
    let other = oncompare.reform(|_: MouseEvent| ());
    let kinds = KINDS.iter().filter_map(|kind| Some((*kind, extension(target(kind)?))));
    let tensors = sums.tensors > 0 && !work.opened.summary;
    html! {
        <div class="pane-h picked" id="picked" data-count={count.to_string()} role="group" aria-label="Picked keys">
            <b role="status">{ text }</b>
            if !work.opened.summary {
                <button class="btn small" id="convert-picked" onclick={convert(None)}>{ format!("Convert {keys}\u{2026}") }</button>
            }
            if tensors {
                <span class="saveas lab">{ "save as " }
                    { for kinds.map(|(id, extension)| html! {
                        <button class="textlink" onclick={convert(Some(id))}>{ format!(".{extension}") }</button>
                    }) }</span>
            }
            if !work.opened.summary {
                <button class="btn small" id="compare-picked" onclick={compare} disabled={pair.is_none()}
                    title={pair.is_none().then_some("Pick exactly 2 tensors")}>{ "Compare these" }</button>
                <button class="btn small" id="compare-other" onclick={other}>{ "Compare with another file\u{2026}" }</button>
            }
            <span class="grow"></span>
            <button class="textlink" id="clear-picked" onclick={clear}>{ "Clear" }</button>
        </div>
    }
}
