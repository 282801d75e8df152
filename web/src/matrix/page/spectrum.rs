//! The singular values of the matrix, on demand: the expected cost, the progress, the result.

use std::rc::Rc;

use yew::prelude::*;

use crate::convert::state::naming::key_name;
use crate::matrix::message::singular::{SingularOffer, SingularReport, SingularRequest};
use crate::matrix::state::MatrixState;
use crate::page::drop::save_text;
use crate::page::error::short_error;
use crate::page::model::actor::Actor;
use crate::page::running::{percent, running_line};
use crate::protocol::job::JobKind;
use crate::protocol::task::TaskRequest;
use crate::state::fmt;
use crate::state::task::Task;

impl Actor {
    /// Requests singular values of the matrix: all, or only the largest.
    fn find_singular(&self, matrix: &MatrixState, all: bool) {
        let selection = matrix.selection.clone();
        self.start(TaskRequest::Singular(SingularRequest { selection, all }));
        self.matrix(|it| it.singular.task = Task::started());
    }
}

/// Renders the section with the singular values.
pub(super) fn section(actor: &Actor, matrix: &MatrixState, title: &AttrValue) -> Html {
    let singular = &matrix.singular;
    if singular.offers.is_empty() {
        return html! {};
    }
    let now = singular.task.now();
    let stop = actor.on(move |actor, _: MouseEvent| {
        actor.stop(JobKind::Singular);
        actor.matrix(|it| it.singular.task.stop());
    });
    let request = |all: bool| {
        let matrix = matrix.clone();
        actor.on(move |actor, _: MouseEvent| actor.find_singular(&matrix, all))
    };
    html! {
        <section id="singular" class="singular"><div class="hd"><h3>{ "Singular values" }</h3>
            if let Some(now) = now {
                { running_line("singular-stop", Some(("Finding singular values", (now.done, now.total))), format!("{} %", percent(now)), stop) }
            }</div>
            { singular.task.error().map(|error| short_error(error)) }
            if let Some(found) = singular.task.result() { { result(found, title) } }
            if now.is_none() { { for singular.offers.iter().map(|offer| html! {
                <p><button class="btn" onclick={request(offer.all)} id={if offer.all { "singular-all" } else { "singular-largest" }}>{ label(offer) }</button>
                    <span class="lab">{ offer.text.clone() }</span></p>
            }) } }
        </section>
    }
}

fn label(offer: &SingularOffer) -> String {
    let time = fmt::time_left(offer.seconds * 1000.0);
    match offer.all {
        true => format!("Find all {} \u{b7} about {time}", fmt::exact(offer.count)),
        false => format!("Find the {} largest \u{b7} about {time}", offer.count),
    }
}

fn result(found: &Rc<SingularReport>, title: &AttrValue) -> Html {
    let save = |kind: &'static str| {
        let (found, title) = (found.clone(), title.clone());
        Callback::from(move |_: MouseEvent| {
            let text = if kind == "svg" { &found.svg } else { &found.csv };
            save_text(text, &key_name(&format!("{title}.singular"), kind));
        })
    };
    html! {
        <>
            { Html::from_html_unchecked(found.svg.clone().into()) }
            <dl class="kv">{ for found.facts.iter().map(|(name, text)| html! { <><dt>{ name }</dt><dd>{ fmt::minus(text) }</dd></> }) }</dl>
            <div class="saves">
                <button class="btn" onclick={save("svg")}>{ "SVG" }</button>
                <button class="btn" id="save-singular" onclick={save("csv")}>{ "CSV" }</button>
            </div>
        </>
    }
}
