//! The recognised model, and the formats of its family as targets.

use statelens_checkpoint::Grade;
use yew::prelude::*;

use crate::convert::state::Conversion;
use crate::family::message::{NamedText, RecognisedModel};
use crate::family::page::files::Choose;
use crate::family::page::request::set;
use crate::page::choice::choice;
use crate::page::controls::change;
use crate::page::error::kind_word;
use crate::page::marks::{self, classes, prose, severity, tick_icon, when};
use crate::page::model::actor::Actor;
use crate::protocol::error::{ErrorKind, ErrorText};

/// The worker's word for a model that the user chose.
const SET_BY_USER: &str = "set by you";

/// Number of targets shown as buttons; the others are in a list.
const BUTTONS: usize = 3;

/// Renders the formats of the model's family, in addition to the plain formats.
pub fn targets(actor: &Actor, convert: &Conversion) -> Html {
    let Some(recognised) = convert.family.as_ref().map(|reply| &reply.recognised) else {
        return html! {};
    };
    if recognised.targets.is_empty() {
        return html! {};
    }
    let chosen = convert.options.family.target.as_deref();
    let first = recognised.targets.len().min(BUTTONS);
    let (buttons, others) = recognised.targets.split_at(first);
    let buttons: Vec<_> = buttons.iter().map(|target| (target.id.clone(), &*target.name)).collect();
    let onclick = actor.on(|actor, id: String| choose(actor, Some(id)));
    let button = choice(false, "", &buttons, chosen.map(str::to_owned), onclick);
    let onchange = actor.on(move |actor, event: Event| {
        if let Some(id) = marks::chosen(&event).filter(|id| !id.is_empty()) {
            choose(actor, Some(id));
        }
    });
    let chosen = chosen.filter(|id| others.iter().any(|target| target.id == *id));
    let all = others.iter().map(|target| (&*target.id, &*target.name)).collect();
    html! {
        <div class="famtargets">
            { button }
            if !others.is_empty() {
                { list("", "Another release", "family-release", "another release", all, chosen, onchange) }
            }
        </div>
    }
}

/// Chooses a format of the family; `None` keeps the names of the keys.
pub(crate) fn choose(actor: &Actor, target: Option<String>) {
    change(actor, move |convert| {
        let options = &mut convert.options;
        let was_folder = options.family.is_folder();
        options.family.target = target;
        if options.family.target.is_some() {
            if !options.family.is_folder() {
                options.to = "cerebras".to_owned();
            } else if !was_folder {
                options.to = "safetensors".to_owned();
            }
            options.version = None;
            options.compress = None;
            options.shard = None;
            options.shard_size = None;
            options.cast = None;
            options.casts.clear();
            (options.object_graph, options.state_file) = (false, false);
        }
        convert.acknowledged.clear();
        convert.named = false;
    });
}

/// Renders the recognised model, and the lists for choosing another one.
pub fn recognition(actor: &Actor, convert: &Conversion) -> Html {
    let Some(recognised) = convert.family.as_ref().map(|reply| &reply.recognised) else {
        return html! {};
    };
    let family = convert.options.family.target.is_some();
    let picks = html! {
        <div class="models">
            { model(actor, convert, recognised) }
            if family && convert.options.family.source.is_some() || !recognised.source.is_empty() && recognised.source != "hf" || recognised.source.is_empty() {
                { source(actor, convert, recognised) }
            }
        </div>
    };
    html! {
        <div class="fs" id="family" data-model={recognised.model.clone()} data-config={recognised.config.clone()}><span class="lab">{ "Model" }</span><div>
            { recognised_text(recognised) }
            if !recognised.fitting.is_empty() { { fitting(actor, recognised) } }
            { picks }
            if let Some(error) = recognised.unknown.as_ref().filter(|_| recognised.fitting.is_empty()) { { unknown(error, recognised) } }
            if recognised.targets.is_empty() && !recognised.model.is_empty() && recognised.unknown.is_none() {
                <p class="dim">{ "Its recipe has no conversion from this format." }</p>
            }
            if recognised.wrapped || convert.options.family.unwrap {
                { check(actor, "family-unwrap", "Unwrap: remove `module.`, `_orig_mod.` and similar prefixes from the keys",
                    convert.options.family.unwrap, |request| request.unwrap = !request.unwrap) }
            }
            if !recognised.adapter.is_empty() {
                { check(actor, "family-fold", &format!("Fold the adapter into the model: `{}`", recognised.adapter),
                    convert.options.family.fold, |request| request.fold = !request.fold) }
            }
            if family && recognised.optimizer {
                { check(actor, "family-optimizer", "Convert the optimizer\u{2019}s moments, too",
                    convert.options.family.with_optimizer, |request| request.with_optimizer = !request.with_optimizer) }
            }
            { openers(actor) }
        </div></div>
    }
}

/// Renders the models that fit, as buttons.
fn fitting(actor: &Actor, recognised: &RecognisedModel) -> Html {
    let button = |name: &String| {
        let model = name.clone();
        let onclick = actor.on(move |actor, _: MouseEvent| {
            let model = model.clone();
            set(actor, move |request| (request.model, request.recipe) = (Some(model), None));
        });
        html! { <button class="btn" data-model={name.clone()} {onclick}>{ name }</button> }
    };
    html! { <div class="presets" id="fitting" role="group" aria-label="Models that fit">{ for recognised.fitting.iter().map(button) }</div> }
}

fn recognised_text(recognised: &RecognisedModel) -> Html {
    if recognised.model.is_empty() {
        let text = match &recognised.unknown {
            Some(error) if error.kind == ErrorKind::Io => "Model not recognised.",
            // The error lists the matching families.
            Some(error) if !error.text.is_empty() => {
                "Several model families match. Choose the model, or add its config."
            }
            _ => {
                "No known model family matches. You can still convert the format; keys stay unchanged."
            }
        };
        return html! { <p class="looks">{ text }</p> };
    }
    let source = recognised.sources.iter().find(|one| one.id == recognised.source);
    let from = source.map(|source| format!(" \u{b7} {}", source.name)).unwrap_or_default();
    html! {
        <p class="looks">
            { "Looks like " }<b>{ &recognised.title }</b>{ from }
            if !evidence(recognised).is_empty() {
                <span class="mid-ink">{ " \u{b7} " }if is_certain(recognised) { { tick_icon() }{ " " } }{ basis(recognised) }</span>
            }
        </p>
    }
}

/// Returns the evidence for the model. A config that contradicts the keys is not evidence.
fn evidence(recognised: &RecognisedModel) -> Vec<&str> {
    let counts = |by: &&str| recognised.mismatch.is_empty() || *by != recognised.config;
    recognised.by.iter().map(String::as_str).filter(counts).collect()
}

/// Returns whether the model is certain, by all of the evidence.
fn is_certain(recognised: &RecognisedModel) -> bool {
    recognised.certain && evidence(recognised).len() == recognised.by.len()
}

/// Describes how the model was recognised.
fn basis(recognised: &RecognisedModel) -> String {
    let evidence = evidence(recognised);
    let by = evidence.join(" and ");
    match (evidence.as_slice(), is_certain(recognised)) {
        ([only], _) if *only == SET_BY_USER => by,
        (_, true) => format!("confirmed by {by}"),
        (_, false) => format!("likely, from {by}"),
    }
}

fn unknown(error: &ErrorText, recognised: &RecognisedModel) -> Html {
    // The line above says that the model is not recognised.
    let unnamed = recognised.model.is_empty() && error.kind != ErrorKind::Io;
    html! {
        <div class="refused small" role="status">
            <p>{ severity(Grade::Note) }<span>
                if !unnamed { { prose(&error.title) }{ " " } }
                if !error.text.is_empty() { { prose(&error.text) } } else if unnamed { { "Choose the model, or load a custom recipe." } }</span></p>
            { for error.next.iter().filter(|(_, command)| !command.is_empty()).map(|(text, command)| html! {
                <p>{ prose(text) }{ ": " }<code>{ command }</code></p>
            }) }
            if !error.file.is_empty() { <p class="m dim">{ format!("{}: {}", kind_word(error.kind), crate::text::place(error)) }</p> }
        </div>
    }
}

fn model(actor: &Actor, convert: &Conversion, recognised: &RecognisedModel) -> Html {
    let chosen = convert.options.family.model.as_deref();
    let own = (chosen.is_none() && !recognised.model.is_empty()).then_some(&*recognised.model);
    let onchange = picked(actor, |request, model| {
        request.model = model;
        request.recipe = None;
    });
    let all = recognised.models.iter().map(|name| (&**name, &**name)).collect();
    list("model", "Model", "family-model", &recognised_label(own), all, chosen, onchange)
}

fn source(actor: &Actor, convert: &Conversion, recognised: &RecognisedModel) -> Html {
    let chosen = convert.options.family.source.as_deref();
    let own = recognised.sources.iter().find(|one| one.id == recognised.source);
    // Without a model, the source is only the first of the list.
    let is_recognised = chosen.is_none() && !recognised.model.is_empty();
    let own = own.filter(|_| is_recognised).map(|own| &*own.name);
    let onchange = picked(actor, |request, source| request.source = source);
    let all = recognised.sources.iter().map(|one| (&*one.id, &*one.name)).collect();
    list("from", "From", "family-source", &recognised_label(own), all, chosen, onchange)
}

/// Returns the label of the list's first choice: the recognised item.
fn recognised_label(own: Option<&str>) -> String {
    own.map_or_else(|| "not recognised".to_owned(), |own| format!("{own} (recognised)"))
}

/// Renders a `select` of (id, name) with a label. Its first choice is the default, with an empty
/// id.
fn list(
    word: &'static str,
    name: &'static str,
    id: &'static str,
    first: &str,
    all: Vec<(&str, &str)>,
    chosen: Option<&str>,
    onchange: Callback<Event>,
) -> Html {
    let on = when(word.is_empty() && chosen.is_some(), "on");
    html! {
        <label class={classes(&["inp", "pick", on])}>
            if !word.is_empty() { <span class="ph">{ word }</span> }
            <select aria-label={name} {id} {onchange}>
                <option value="" selected={chosen.is_none()}>{ first.to_owned() }</option>
                { for all.into_iter().map(|(id, name)| html! {
                    <option value={id.to_owned()} selected={chosen == Some(id)}>{ name }</option>
                }) }
            </select></label>
    }
}

/// Returns the callback for a list: stores the chosen id, `None` for the first choice.
fn picked(
    actor: &Actor,
    apply: fn(&mut crate::family::message::FamilyRequest, Option<String>),
) -> Callback<Event> {
    actor.on(move |actor, event: Event| {
        let value = marks::chosen(&event).filter(|value| !value.is_empty());
        set(actor, move |request| apply(request, value));
    })
}

/// Renders a check box for an option of the family.
fn check(
    actor: &Actor,
    id: &'static str,
    text: &str,
    on: bool,
    toggle: fn(&mut crate::family::message::FamilyRequest),
) -> Html {
    marks::check(id, on, text, actor.on(move |actor, _: Event| set(actor, toggle)))
}

/// Renders the links for choosing a config or a recipe.
fn openers(actor: &Actor) -> Html {
    let open = |kind: &'static str, accept: &'static str, apply: fn(&Actor, NamedText)| {
        let onfile = actor.on(apply);
        html! { <Choose label={kind} {accept} {onfile} /> }
    };
    html! {
        <p class="dim openers">{ "Drop a config.json, params.yaml or .recipe on this sheet, or choose a " }
            { open("config", ".json,.yaml,.yml", super::files::config) }{ " or a " }
            { open("recipe", ".recipe,.txt", super::files::recipe) }{ "." }</p>
    }
}

/// Renders a note that the keys keep their names although the chosen format suggests otherwise,
/// with the target that would rename them.
pub fn unchanged_names_note(actor: &Actor, convert: &Conversion) -> Html {
    let Some(recognised) = convert.family.as_ref().map(|reply| &reply.recognised) else {
        return html! {};
    };
    if convert.options.family.target.is_some() || recognised.model.is_empty() {
        return html! {};
    }
    let (source_name, reader, wanted) = match (&*recognised.source, &*convert.options.to) {
        ("hf", "cerebras") => ("Hugging Face", "the Model Zoo", "cs-"),
        (source, "safetensors" | "torch") if source.starts_with("cs-") => {
            ("Cerebras", "Transformers", "hf")
        }
        _ => return html! {},
    };
    let Some(target) = recognised.targets.iter().find(|target| target.id.starts_with(wanted))
    else {
        return html! {};
    };
    let id = target.id.clone();
    let onclick = actor.on(move |actor, _: MouseEvent| choose(actor, Some(id.clone())));
    html! {
        <div class="stay" id="names-stay">
            <p>{ severity(Grade::Note) }<span>{ format!("Keys keep their {source_name} names; {reader} expects different ones.") }</span></p>
            <button class="btn" {onclick}>{ format!("Convert to {} instead", target.name) }</button>
        </div>
    }
}
