//! The inspector's section on how a weight is quantised, and the choice of another reading of stored
//! bytes.

use statelens_checkpoint::visible;
use web_sys::HtmlInputElement;
use yew::prelude::*;

use crate::page::marks::{breakable, chosen, dtype};
use crate::page::model::actor::{Actor, VALUES};
use crate::protocol::ToWorker;
use crate::quantised::message::{QuantisedDetails, ShownAs, StoredPart};
use crate::rows::Row;
use crate::state::fmt;
use crate::state::work::OpenWork;

/// Renders the scheme of a weight, and the tensors that it is stored as.
/// `key` is the selected row's.
pub fn section(actor: &Actor, work: &OpenWork, key: &str, details: &QuantisedDetails) -> Html {
    let part = |part: &StoredPart| {
        // The codes have no row of their own: the weight's has their numbers.
        let row = work.find(&part.key).or_else(|| work.find(&details.weight));
        let selected = |row: &u32| work.rows.get(*row as usize).is_some_and(|row| row.key == key);
        let row = row.filter(|row| !selected(row));
        let name = html! { <>{ breakable(&part.key) }</> };
        let name = match row {
            Some(row) => {
                let onclick = actor.on(move |actor, _: MouseEvent| {
                    actor.work(move |work| work.select_row(row));
                });
                html! { <button class="textlink m keylink" {onclick}>{ name }</button> }
            }
            None => html! { <span class="m">{ name }</span> },
        };
        html! {
            <li data-part={visible(&part.key)}>{ name }
                <span class="dim">{ dtype(&part.dtype) }{ format!(" {} \u{b7} {}", fmt::shape(&part.shape), fmt::bytes(part.bytes)) }</span></li>
        }
    };
    html! {
        <section id="quantised">
            <div class="hd"><h3>{ "Quantised" }</h3><span class="lab">{ &details.scheme }</span></div>
            if !details.refused.is_empty() {
                <p class="w-warn">{ format!("Its numbers are not known: {}", details.refused) }</p>
            } else if details.dtype.is_empty() {
                <p class="dim">{ "A part of a quantised weight, or indices into its codebook." }</p>
            } else {
                <p class="dim">{ format!("Values are its numbers in {}, computed from:", details.dtype) }</p>
            }
            <ul class="stored">{ for details.parts.iter().map(part) }</ul>
            if !details.inferred.is_empty() { <p class="dim">{ format!("Inferred from shapes: {}.", details.inferred.join(", ")) }</p> }
        </section>
    }
}

/// Dtypes by the number of bytes of an element.
const SAME_WIDTH: [(u64, &[&str]); 4] = [
    (1, &["uint8", "int8", "bool", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"]),
    (2, &["bfloat16", "float16", "int16", "uint16"]),
    (4, &["float32", "int32", "uint32"]),
    (8, &["float64", "int64", "uint64"]),
];
/// Integers of four bits, as `show --as` names them.
const FOUR_BITS: [(&str, &str); 4] = [
    ("uint4", "uint4, low first"),
    ("int4", "int4, low first"),
    ("uint4-high-first", "uint4, high first"),
    ("int4-high-first", "int4, high first"),
];

/// Renders the choice of another dtype and shape for the stored bytes; nothing for dtypes of blocks
/// and of more than 8 bytes.
pub fn shown_as(
    actor: &Actor,
    row: &Row,
    id: u32,
    stored: &str,
    current: Option<&ShownAs>,
) -> Html {
    let digits: String = stored.chars().skip_while(|c| !c.is_ascii_digit()).collect();
    let digits: String = digits.chars().take_while(char::is_ascii_digit).collect();
    let bits = match stored {
        "bool" => 8,
        _ => digits.parse::<u64>().unwrap_or(0),
    };
    let Some((_, list)) = SAME_WIDTH.iter().find(|(bytes, _)| bytes * 8 == bits) else {
        return html! {};
    };
    let is_codes = stored != row.dtype;
    let set = move |actor: &Actor, shown: Option<ShownAs>| {
        actor.values_panel({
            let shown = shown.clone();
            move |panel| {
                panel.shown_as = shown.map(|shown| (id, shown));
                (panel.at, panel.slice, panel.line) = (None, None, None);
            }
        });
        let (slice, start) = (String::new(), 0);
        actor.request(&ToWorker::Values { row: id, slice, start, count: VALUES, shown });
    };
    let onchange = actor.on(move |actor, event: Event| {
        let value = chosen(&event).unwrap_or_default();
        let shown = ShownAs { dtype: value, shape: String::new() };
        set(actor, Some(shown).filter(|shown| !shown.dtype.is_empty()));
    });
    let now = current.cloned().unwrap_or_default();
    let known = now.clone();
    let onshape = actor.on(move |actor, event: Event| {
        let Some(input) = event.target_dyn_into::<HtmlInputElement>() else { return };
        set(actor, Some(ShownAs { shape: input.value(), ..known.clone() }));
    });
    let option = |value: &'static str, name: &'static str| {
        html! { <option {value} selected={now.dtype == value}>{ name }</option> }
    };
    let first = if is_codes { "numbers" } else { "its dtype" };
    html! {
        <div class="readas" id="shown-as">
            <label><span class="lab">{ "show bytes as " }</span><span class="inp pick"><select {onchange}>
                <option value="" selected={now.dtype.is_empty()}>{ first }</option>
                { for list.iter().filter(|name| is_codes || **name != row.dtype).map(|name| option(name, name)) }
                { for FOUR_BITS.iter().map(|(value, name)| option(value, name)) }
            </select></span></label>
            if !now.dtype.is_empty() {
                <label class="inp"><span class="lab">{ "shape" }</span><input type="text" value={now.shape.clone()} placeholder="as stored" onchange={onshape} autocomplete="off" /></label>
            }
        </div>
    }
}
