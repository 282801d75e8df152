//! The description of the model, in the inspector when nothing is selected.

use std::rc::Rc;

use gloo_timers::callback::Timeout;
use statelens_checkpoint::{grouped, listed, size_text};
use statelens_describe::model::{Fact, FactSource, MemoryEstimate, Model};
use yew::prelude::*;

use crate::model_description::message::ModelDescription;
use crate::page::marks::{cap, classes, when};
use crate::page::model::actor::Actor;
use crate::page::model::{PageModel, Tab};
use crate::protocol::ToWorker;

/// Milliseconds without a keystroke in the filter before the description is requested. With very
/// many keys, computing it occupies a core for a while, which the filter needs more.
const DEBOUNCE: u32 = 250;

/// Requests the description of the model after a checkpoint was opened, once the user has stopped
/// typing in the filter.
#[hook]
pub fn use_model_description(model: &UseReducerHandle<PageModel>, actor: &Actor) {
    let requested = use_mut_ref(|| 0);
    let open = model.work.as_ref().map(|work| (model.session, work.filter.clone()));
    let actor = actor.clone();
    use_effect_with(open, move |open| {
        let session = open.as_ref().map(|(session, _)| *session);
        let rests = session.filter(|session| *requested.borrow() != *session).map(|session| {
            Timeout::new(DEBOUNCE, move || {
                *requested.borrow_mut() = session;
                actor.request(&ToWorker::DescribeModel(false));
            })
        });
        move || drop(rests)
    });
}

/// Renders the buttons below the tree, for the description and the treemap. While `shown`, the
/// inspector has the description; on a small screen it is on another tab.
pub fn footer(actor: &Actor, description: &ModelDescription, shown: bool) -> Html {
    let all = actor.on(move |actor, _: MouseEvent| {
        actor.work(|work| work.selection = None);
        actor.tab(Tab::Tensor);
    });
    let map = actor.on(move |actor, _: MouseEvent| actor.show_treemap());
    html! {
        <section class="foot" aria-label="Model">
            <button class="textrow" id="show-treemap" onclick={map}>{ "Where the bytes are " }{ cap("T") }</button>
            if !description.model.facts.is_empty() {
                <button class={classes(&["textrow", when(shown, "only-s")])} id="show-model" onclick={all}>{ "About the model" }</button>
            }
        </section>
    }
}

/// Renders the full description.
pub fn all(actor: &Actor, description: &Rc<ModelDescription>) -> Html {
    if description.model.facts.is_empty() {
        return html! {};
    }
    let model = &description.model;
    let more = more(model);
    let fetch = description.fetch.clone().map(|name| {
        let onclick =
            actor.on(move |actor, _: MouseEvent| actor.request(&ToWorker::DescribeModel(true)));
        html! { <button class="btn" {onclick}>{ format!("Fetch {name}") }</button> }
    });
    html! {
        <>
            <section class="understood">
                <div class="hd"><h3>{ "Model" }</h3><span class="lab">{ heading(model) }</span></div>
                <dl class="kv">{ for model.facts.iter().filter(|fact| is_shown(fact)).map(fact) }</dl>
                { unknown(model) }
                { for fetch }
            </section>
            <section class="understood">
                <div class="hd"><h3>{ "Parameters by part" }</h3></div>
                { parts(model) }
            </section>
            if !more.is_empty() {
                <section class="understood">
                    <div class="hd"><h3>{ "Memory and storage" }</h3></div>
                    <dl class="kv">{ for more }</dl>
                </section>
            }
        </>
    }
}

/// Renders the parameters by part, with bars.
pub fn parts(model: &Model) -> Html {
    let params = model.number("parameters").unwrap_or(0).max(1);
    html! {
        <ul class="parts" aria-label="Parameters by part">
            { for model.parts.iter().map(|sum| {
                let active = match sum.active {
                    Some(active) if active != sum.params => format!("{} active, ", grouped(active)),
                    Some(_) => String::new(),
                    None => "active unknown, ".to_owned(),
                };
                let share = sum.params as f64 / params as f64;
                html! {
                    <li style={format!("--w:{:.2}%", share.min(1.0) * 100.0)}>
                        <span class="t">{ sum.component.word() }</span>
                        <span class="num">{ grouped(sum.params) }</span>
                        <span class="bar" aria-hidden="true"><i></i></span>
                        <span class="dim">{ active }{ size_text(sum.bytes) }</span>
                    </li>
                }
            }) }
        </ul>
    }
}

fn heading(model: &Model) -> String {
    match model.config.as_str() {
        "" => "Read from names and shapes".to_owned(),
        config => format!("Read from {config}, names and shapes"),
    }
}

/// Returns whether a fact has a line of its own: those that only a config has share one.
fn is_shown(fact: &Fact) -> bool {
    fact.is_known() || !fact.doubt.is_empty()
}

/// Names the facts that are not known.
fn unknown(model: &Model) -> Html {
    let names: Vec<String> = model
        .facts
        .iter()
        .filter(|fact| !is_shown(fact))
        .map(|fact| fact.label.to_string())
        .collect();
    if names.is_empty() {
        return html! {};
    }
    let names = listed(&names, 6);
    let advice = if model.config.is_empty() { " Drop config.json, too." } else { "" };
    html! { <p class="dim" id="unknown-facts">{ format!("Not in the file: {names}.{advice}") }</p> }
}

fn fact(fact: &Fact) -> Html {
    let (known, doubt, basis) = (fact.is_known(), &fact.doubt, fact.basis());
    // The doubt has a line of its own.
    let source = fact.source.text();
    html! {
        <>
            <dt>{ &*fact.label }</dt>
            if let Some(number) = fact.corrected() {
                // A config of another model must not stand for the file.
                <dd title={doubt.clone()}>{ grouped(number) }<span class="src">{ "from the shapes" }</span>
                    <span class="src doubt w-warn">{ format!("{} says {}", source.split(':').next().unwrap_or(source), fact.text()) }</span></dd>
            } else {
                <dd class={classes(&[when(!known, "dim"), when(!doubt.is_empty(), "w-warn")])} title={match (basis.is_empty(), source.is_empty()) {
                    (_, true) => basis.clone(),
                    (true, _) => source.to_owned(),
                    _ if basis.contains(source) => basis.clone(),
                    _ => format!("{basis}: {source}"),
                }}>{ fact.text() }
                    if known { <span class="src">{ source_word(&fact.source) }</span> }
                    if !doubt.is_empty() { <span class="src doubt">{ doubt }</span> }</dd>
            }
        </>
    }
}

/// Returns the source of a fact: a config, the file's metadata, or an inference from names and
/// shapes.
fn source_word(source: &FactSource) -> &'static str {
    match source {
        FactSource::Config(_) => "from config",
        FactSource::File(_) => "from the file",
        FactSource::Inferred(_) | FactSource::Unknown(_) => source.word(),
    }
}

/// Renders quantised layouts, memory and the optimizer.
fn more(model: &Model) -> Vec<Html> {
    let line = |label: &str, value: String, basis: &str| {
        html! {
            <>
                <dt>{ label }</dt><dd>{ value }</dd>
                if !basis.is_empty() { <dd class="basis">{ basis }</dd> }
            </>
        }
    };
    let mut lines = Vec::new();
    for layout in &model.quantised {
        let bits = layout.bits_per_weight().map(|bits| format!("{bits:.3} bits each"));
        let block = match layout.block.is_empty() {
            true => "block size unknown".to_owned(),
            false => format!("a scale per {}", layout.block),
        };
        let value = bits.unwrap_or_else(|| "bits unknown".to_owned());
        lines.push(line(&layout.layout, value, &format!("{block}, {} tensors", layout.tensors)));
    }
    if let Some(memory) = &model.memory {
        for (label, bytes, basis) in [
            ("to load as stored", memory.stored, ""),
            ("in bfloat16", memory.bfloat16, ""),
            ("in float32", memory.float32, ""),
            ("to train with Adam", memory.training, MemoryEstimate::FORMULA),
        ] {
            lines.push(line(label, size_text(bytes), basis));
        }
    }
    for resolved in &model.optimizer {
        let basis = match resolved.basis.as_str() {
            "" => "their parameters are not known",
            basis => basis,
        };
        lines.push(line("optimizer entries", grouped(resolved.entries), basis));
    }
    lines
}
