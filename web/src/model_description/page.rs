//! The description of the model, in the inspector when nothing is selected.

use std::rc::Rc;

use gloo_timers::callback::Timeout;
use yew::prelude::*;

use crate::model_description::message::{FactLine, ModelDescription};
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
            if !description.facts.is_empty() {
                <button class={classes(&["textrow", when(shown, "only-s")])} id="show-model" onclick={all}>{ "About the model" }</button>
            }
        </section>
    }
}

/// Renders the full description.
pub fn all(actor: &Actor, description: &Rc<ModelDescription>) -> Html {
    if description.facts.is_empty() {
        return html! {};
    }
    let fetch = description.fetch.clone().map(|name| {
        let onclick =
            actor.on(move |actor, _: MouseEvent| actor.request(&ToWorker::DescribeModel(true)));
        html! { <button class="btn" {onclick}>{ format!("Fetch {name}") }</button> }
    });
    html! {
        <>
            <section class="understood">
                <div class="hd"><h3>{ "Model" }</h3><span class="lab">{ heading(description) }</span></div>
                <dl class="kv">{ for description.facts.iter().map(fact_with_basis) }</dl>
                { for fetch }
            </section>
            <section class="understood">
                <div class="hd"><h3>{ "Parameters by part" }</h3></div>
                { parts(description) }
            </section>
            if !description.more.is_empty() {
                <section class="understood">
                    <div class="hd"><h3>{ "Memory and storage" }</h3></div>
                    <dl class="kv">{ for description.more.iter().map(fact_with_basis) }</dl>
                </section>
            }
        </>
    }
}

/// Renders the parameters by part, with bars.
pub fn parts(description: &ModelDescription) -> Html {
    html! {
        <ul class="parts" aria-label="Parameters by part">
            { for description.parts.iter().map(|part| html! {
                <li style={format!("--w:{:.2}%", part.share.min(1.0) * 100.0)}>
                    <span class="t">{ &part.label }</span>
                    <span class="num">{ &part.value }</span>
                    <span class="bar" aria-hidden="true"><i></i></span>
                    <span class="dim">{ &part.basis }</span>
                </li>
            }) }
        </ul>
    }
}

fn heading(description: &ModelDescription) -> String {
    match description.config.as_str() {
        "" => "Read from names and shapes".to_owned(),
        config => format!("Read from {config}, names and shapes"),
    }
}

fn is_known(fact: &FactLine) -> bool {
    fact.source != "unknown"
}

fn fact(line: &FactLine) -> Html {
    let known = is_known(line);
    html! {
        <>
            <dt>{ &line.label }</dt>
            <dd class={classes(&[when(!known, "dim"), when(!line.doubt.is_empty(), "w-warn")])} title={line.basis.clone()}>{ &line.value }
                if known && !line.source.is_empty() { <span class="src">{ source_word(line) }</span> }
                if !line.doubt.is_empty() { <span class="src doubt">{ &line.doubt }</span> }</dd>
        </>
    }
}

/// Returns the source of a fact: a config, the file's metadata, or an inference from names and
/// shapes.
fn source_word(line: &FactLine) -> String {
    let of_config = [".json", ".yaml", ".yml"].iter().any(|end| line.basis.contains(end));
    line.source.replace("read", if of_config { "from config" } else { "from the file" })
}

fn fact_with_basis(line: &FactLine) -> Html {
    html! {
        <>
            { fact(line) }
            if !line.basis.is_empty() { <dd class="basis">{ &line.basis }</dd> }
        </>
    }
}
