//! The parts of the convert sheet that edit the contents: states, keys, dtypes by key; and the
//! preview of the changed keys.

use statelens_formats::Choice;
use yew::prelude::*;

use crate::convert::message::{KeyChange, Preview};
use crate::convert::state::Conversion;
use crate::page::controls::{change, choices, radios};
use crate::page::marks::{
    breakable, changed_key, check, classes, contents_text, tick_icon, typed, when,
};
use crate::page::model::actor::Actor;
use crate::state::fmt;
use crate::state::work::OpenWork;

/// Maximum number of states with check boxes. With more, the top level is a flat dict of keys,
/// which are selected by patterns.
const MAX_STATES: usize = 24;
/// Maximum number of lines that a field grows to.
const MAX_LINES: usize = 8;

/// Renders a check box for each state. States that start with `__` are always kept.
pub fn states(actor: &Actor, work: &OpenWork, convert: &Conversion) -> Html {
    if work.states.len() < 2 || work.states.len() > MAX_STATES {
        return html! {};
    }
    let all: Vec<String> = work.states.iter().map(|(name, _)| name.clone()).collect();
    let stays = |name: &str| name.starts_with("__");
    let on =
        all.iter().filter(|name| !stays(name) && !convert.excluded_states.contains(*name)).count();
    html! {
        <div class="fs"><span class="lab">{ "States" }</span><div class="states">
            { for work.states.iter().map(|(name, sums)| {
                let checked = !convert.excluded_states.contains(name);
                // At least one state must stay selected: an empty selection would mean all.
                let fixed = stays(name) || (checked && on < 2);
                let (name_, all) = (name.clone(), all.clone());
                let onchange = actor.on(move |actor, _: Event| {
                    let (name, all) = (name_.clone(), all.clone());
                    change(actor, move |convert| {
                        if !convert.excluded_states.remove(&name) {
                            convert.excluded_states.insert(name);
                        }
                        convert.options.states = match convert.excluded_states.is_empty() {
                            true => Vec::new(),
                            false => all
                                .into_iter()
                                .filter(|name| !name.starts_with("__") && !convert.excluded_states.contains(name))
                                .collect(),
                        };
                    });
                });
                let holds = match sums.tensors {
                    0 => contents_text(sums),
                    tensors => format!("{} \u{b7} {}", fmt::plural(tensors, "tensor"), fmt::bytes(sums.bytes)),
                };
                let title = stays(name).then_some("always kept; leave it out with \u{201c}Exclude\u{201d}");
                html! {
                    <label {title}><input type="checkbox" class="cb" {checked} disabled={fixed} {onchange} /><span class="t">{ name }</span>
                        <span class="num">{ holds }</span></label>
                }
            }) }
        </div></div>
    }
}

/// Renders the fields for selecting and renaming keys, with the preview.
pub fn keys(actor: &Actor, convert: &Conversion) -> Html {
    let options = &convert.options;
    let lines = |label: &'static str,
                 version: u32,
                 value: &[String],
                 placeholder: &'static str,
                 set: fn(&mut Conversion, Vec<String>)| {
        let onchange = actor.on(move |actor, list: Vec<String>| {
            change(actor, move |convert| set(convert, list));
        });
        html! { <Lines key={version} {label} value={value.to_vec()} {placeholder} {onchange} /> }
    };
    let check = |label: &'static str,
                 id: &'static str,
                 checked: bool,
                 about: &'static str,
                 toggle: fn(&mut Conversion)| {
        let onchange = actor.on(move |actor, _: Event| change(actor, toggle));
        html! {
            <label class="field"><span class="lab">{ label }</span>
                <span class="check"><input type="checkbox" class="cb" {id} {checked} {onchange} /><span>{ about }</span></span></label>
        }
    };
    html! {
        <div class="fs"><span class="lab">{ "Keys" }</span><div class="fields">
            { lines("Include", convert.included, &options.select, "all; or e.g. model.* or /regex/, one per line", |convert, list| convert.options.select = list) }
            { lines("Exclude", 0, &options.exclude, "nothing; or e.g. *.bias, one per line", |convert, list| convert.options.exclude = list) }
            { text(actor, "Remove prefix", &options.strip_prefix, "e.g. model.", |convert, text| convert.options.strip_prefix = text) }
            { lines("Rename", convert.included, &options.rename, "regex=>replacement, with $1 for a group; one per line", |convert, list| convert.options.rename = list) }
            { prefix(actor, convert, "e.g. model.") }
            { check("Nest", "nest", options.nest, "Split keys at their dots into nested dicts", |convert| convert.options.nest = !convert.options.nest) }
            { check("Untie", "untie", options.untie, "Store a separate copy for each tied name", |convert| convert.options.untie = !convert.options.untie) }
            if let Some(Ok(plan)) = &convert.plan { { table(&plan.preview) } }
        </div></div>
    }
}

fn text(
    actor: &Actor,
    label: &'static str,
    value: &str,
    placeholder: &'static str,
    set: fn(&mut Conversion, String),
) -> Html {
    let oninput = actor.on(move |actor, event: InputEvent| {
        let Some(value) = typed(&event) else { return };
        change(actor, move |convert| set(convert, value));
    });
    html! {
        <label class="field"><span class="lab">{ label }</span>
            <span class="inp"><input type="text" value={value.to_owned()} {oninput} {placeholder} autocomplete="off" autocapitalize="off" spellcheck="false" /></span></label>
    }
}

fn prefix(actor: &Actor, convert: &Conversion, placeholder: &'static str) -> Html {
    text(actor, "Add prefix", &convert.options.prefix, placeholder, |convert, text| {
        convert.options.prefix = text
    })
}

/// Renders the field for the key under which an array without a key is written.
pub fn key_of_array(actor: &Actor, convert: &Conversion) -> Html {
    html! {
        <div class="fs"><span class="lab">{ "Keys" }</span><div class="fields">
            { prefix(actor, convert, "the key of the array, e.g. weight") }
        </div></div>
    }
}

/// Dtypes that floating-point tensors can be cast to.
const CASTS: [Choice; 4] = [
    Choice { id: "", name: "as it is" },
    Choice { id: "float32", name: "f32" },
    Choice { id: "bfloat16", name: "bf16" },
    Choice { id: "float16", name: "f16" },
];

/// Renders the choice of a dtype for all floating-point tensors.
pub fn cast(actor: &Actor, convert: &Conversion) -> Html {
    choices(
        actor,
        "Cast",
        "dtype of floating-point tensors",
        &CASTS,
        convert.options.cast.as_deref(),
        |convert, id| convert.options.cast = id,
    )
}

/// Dtypes that quantised weights can be written in.
const DENSE: [Choice; 4] = [
    Choice { id: "", name: "no" },
    Choice { id: "bfloat16", name: "bf16" },
    Choice { id: "float16", name: "f16" },
    Choice { id: "float32", name: "f32" },
];
/// Dtypes for weights in blocks, which become float32 without a choice.
const OF_BLOCKS: [Choice; 3] = [
    Choice { id: "", name: "f32" },
    Choice { id: "bfloat16", name: "bf16" },
    Choice { id: "float16", name: "f16" },
];

/// Renders the choice to write quantised weights as numbers, and to split stacked layers; nothing
/// if the checkpoint has neither.
pub fn forms(actor: &Actor, convert: &Conversion) -> Html {
    let unstack = actor.on(move |actor, _: Event| {
        change(actor, |convert| convert.options.unstack = !convert.options.unstack);
    });
    html! {
        <>
            if convert.opened.blocks > 0 && convert.opened.blocks == convert.opened.quantised {
                <div class="fs"><span class="lab">{ "Dequantise" }</span><div>
                    { radios(actor, "Dequantise: dtype of quantised weights", &OF_BLOCKS, convert.options.dequantize.as_deref(), |convert, id| convert.options.dequantize = id) }
                    <p class="dim">{ "No target holds quantised blocks, so they are written as numbers." }</p>
                </div></div>
            } else if convert.opened.quantised > 0 {
                { choices(actor, "Dequantise", "dtype of quantised weights", &DENSE, convert.options.dequantize.as_deref(), |convert, id| convert.options.dequantize = id) }
            }
            if convert.opened.stacked {
                <div class="fs"><span class="lab">{ "Layers" }</span><div>
                    { check("unstack", convert.options.unstack, "Write one key for each layer", unstack) }
                </div></div>
            }
        </>
    }
}

/// Renders the choice of a dtype for all floating-point tensors, and the rules by key.
pub fn casts(actor: &Actor, convert: &Conversion) -> Html {
    let onchange = actor.on(move |actor, list: Vec<String>| {
        change(actor, move |convert| convert.options.casts = list);
    });
    // Keys of another format have other names, so the field is reset when the format changes.
    let format = convert.options.family.target.clone().unwrap_or_default();
    html! {
        <>
            { cast(actor, convert) }
            <div class="fs"><span class="lab">{ "Cast by key" }</span><div class="fields">
                <Lines key={format} label="Rules" value={convert.options.casts.clone()} {onchange}
                    placeholder="none; or *.norm.*=float32, one per line; the first that matches wins" />
            </div></div>
        </>
    }
}

/// Renders the table of changed keys.
fn table(preview: &Preview) -> Html {
    if preview.rows.is_empty() {
        return html! {};
    }
    let casts = preview.cast > 0;
    let row = |change: &KeyChange| {
        let old = match &change.new {
            Some(new) if *new != change.old => changed_key(&change.old, new),
            _ => html! { <span class="key">{ breakable(&change.old) }</span> },
        };
        let new = match &change.new {
            Some(new) => changed_key(new, &change.old),
            None => html! { <span class="dim">{ "left out" }</span> },
        };
        html! {
            <tr class={classes(&[when(change.new.is_none(), "out")])}>
                <td title={change.old.clone()}>
                    { old }
                    if change.times > 1 { <span class="x">{ format!(" \u{d7}{}", fmt::exact(change.times)) }</span> }
                </td>
                <td class="ar">{ if change.new.is_some() { "\u{2192}" } else { "" } }</td>
                <td title={change.new.clone()}>{ new }</td>
                if casts { <td class="num dim">{ change.dtype.clone().unwrap_or_default() }</td> }
            </tr>
        }
    };
    let shown = preview.shown;
    let of = |count: u64| format!("{} of {}", fmt::exact(count), fmt::exact(preview.total));
    let more = (preview.changed + preview.left_out).saturating_sub(shown);
    html! {
        <div class="preview" id="preview">
            <div class="scroll" role="group" tabindex="0" aria-label="Keys before and after">
                <table class="ren">
                    <colgroup><col /><col class="c-ar" /><col />if casts { <col class="c-dt" /> }</colgroup>
                    <thead><tr>
                        <th scope="col">{ "key in the checkpoint" }</th><td></td><th scope="col">{ "key in the output" }</th>
                        if casts { <th scope="col" class="num">{ "dtype" }</th> }
                    </tr></thead>
                    <tbody>{ for preview.rows.iter().map(row) }</tbody>
                </table>
            </div>
            <p class="counts mid-ink">
                if preview.renamed > 0 { <span>{ tick_icon() }{ format!(" {} renamed", of(preview.renamed)) }</span> }
                if preview.cast > 0 { <span>{ tick_icon() }{ format!(" {} cast", of(preview.cast)) }</span> }
                if preview.left_out > 0 { <span>{ format!("{} left out", of(preview.left_out)) }</span> }
                if preview.renamed > 0 { <span>{ tick_icon() }{ " no two keys collide" }</span> }
                if more > 0 { <span class="dim">{ format!("the first {} are shown", fmt::exact(shown)) }</span> }
            </p>
        </div>
    }
}

/// Properties of a field with one value per line.
#[derive(Properties, PartialEq)]
pub struct LinesProps {
    /// Label of the field.
    pub label: &'static str,
    /// Initial values. Afterwards the field keeps its own text.
    pub value: Vec<String>,
    /// Text shown in an empty field.
    pub placeholder: &'static str,
    /// Whether `onchange` is called when the field loses the focus, rather than on each keystroke.
    #[prop_or_default]
    pub late: bool,
    /// Called with the new values.
    pub onchange: Callback<Vec<String>>,
}

/// A field with one value per line.
#[component]
pub fn Lines(props: &LinesProps) -> Html {
    let text = use_state(|| props.value.join("\n"));
    let late = props.late;
    let oninput = {
        let (text, onchange) = (text.clone(), props.onchange.clone());
        Callback::from(move |event: InputEvent| {
            let Some(area) = event.target_dyn_into::<web_sys::HtmlTextAreaElement>() else {
                return;
            };
            let value = area.value();
            let before = values(&text);
            let now = values(&value);
            text.set(value);
            if now != before && !late {
                onchange.emit(now);
            }
        })
    };
    let onchange = {
        let (text, onchange) = (text.clone(), props.onchange.clone());
        Callback::from(move |_: Event| {
            if late {
                onchange.emit(values(&text));
            }
        })
    };
    let rows = text.split('\n').count().clamp(1, MAX_LINES);
    html! {
        <label class="field"><span class="lab">{ props.label }</span>
            <span class="inp lines"><textarea rows={rows.to_string()} value={(*text).clone()} {oninput} {onchange} placeholder={props.placeholder}
                wrap="off" autocomplete="off" autocapitalize="off" spellcheck="false" /></span></label>
    }
}

/// Returns the non-empty lines of a text.
fn values(text: &str) -> Vec<String> {
    text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
}
