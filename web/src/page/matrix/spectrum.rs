//! The singular values of the matrix, on demand: the expected cost, the progress, the result.

use yew::prelude::*;

use crate::page::drop::save_text;
use crate::page::model::actor::Actor;
use crate::page::naming::key_name;
use crate::protocol::ToWorker;
use crate::protocol::matrix::MatrixRequest;
use crate::protocol::singular::{SingularOffer, SingularReport, SingularRequest};
use crate::state::fmt;
use crate::state::matrix::{ByIdentity, MatrixState};

impl Actor {
    /// Requests singular values of the matrix: all (`true`) or only the largest (`false`). `None`
    /// stops the computation.
    pub(super) fn find_singular(&self, matrix: &MatrixState, all: Option<bool>) {
        let request = SingularRequest::Find(all.map(|all| (matrix.selection.clone(), all)));
        self.request(&ToWorker::Matrix(MatrixRequest::Singular(request)));
        self.matrix(move |it| match all {
            Some(_) => {
                it.singular.part = Some(0.0);
                (it.singular.found, it.singular.failed) = (None, None);
            }
            None => it.singular.part = None,
        });
    }
}

/// Renders the section with the singular values.
pub(super) fn section(actor: &Actor, matrix: &MatrixState, title: &AttrValue) -> Html {
    let singular = &matrix.singular;
    if singular.offers.is_empty() {
        return html! {};
    }
    let request = |all: Option<bool>| {
        let matrix = matrix.clone();
        actor.on(move |actor, _: MouseEvent| actor.find_singular(&matrix, all))
    };
    html! {
        <section id="singular" class="singular"><div class="hd"><h3>{ "Singular values" }</h3>
            if let Some(part) = singular.part {
                <span class="going"><span class="m dim">{ format!("{:.0} %", (part * 100.0).min(99.0)) }</span>
                    <button class="textlink" id="singular-stop" onclick={request(None)}>{ "Stop" }</button></span>
            }</div>
            if let Some(part) = singular.part {
                <div class="prog thin" role="progressbar" aria-label="Finding singular values" aria-valuemin="0" aria-valuemax="100"
                    aria-valuenow={format!("{:.0}", part * 100.0)}><i style={format!("--w:{:.1}%", part * 100.0)}></i></div>
            }
            if let Some(error) = &singular.failed { <p class="w-warn" role="alert">{ &error.title }</p><p class="dim">{ &error.text }</p> }
            if let Some(found) = &singular.found { { result(found, title) } }
            if singular.part.is_none() { { for singular.offers.iter().map(|offer| html! {
                <p><button class="btn" onclick={request(Some(offer.all))} id={if offer.all { "singular-all" } else { "singular-largest" }}>{ label(offer) }</button>
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

fn result(found: &ByIdentity<SingularReport>, title: &AttrValue) -> Html {
    let save = |kind: &'static str| {
        let (found, title) = (found.clone(), title.clone());
        Callback::from(move |_: MouseEvent| {
            let text = if kind == "svg" { &found.0.svg } else { &found.0.csv };
            save_text(text, &key_name(&format!("{title}.singular"), kind));
        })
    };
    html! {
        <>
            { Html::from_html_unchecked(found.0.svg.clone().into()) }
            <dl class="kv">{ for found.0.facts.iter().map(|(name, text)| html! { <><dt>{ name }</dt><dd>{ fmt::minus(text) }</dd></> }) }</dl>
            <div class="saves">
                <button class="btn" onclick={save("svg")}>{ "SVG" }</button>
                <button class="btn" id="save-singular" onclick={save("csv")}>{ "CSV" }</button>
            </div>
        </>
    }
}
