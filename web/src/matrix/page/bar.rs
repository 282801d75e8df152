//! The toolbar of the heatmap: slice, index, zoom, scale.

use statelens_values::picture::{ColourScaling, Show};
use web_sys::HtmlInputElement;
use yew::prelude::*;

use crate::matrix::page::dims::dims;
use crate::matrix::state::view::MatrixView;
use crate::matrix::state::{MatrixState, Profile};
use crate::page::marks::{cap, chip, chosen, prose};
use crate::page::model::actor::Actor;
use crate::state::fmt;
use crate::state::work::layers::Layer;
use crate::values::page::{GoToTarget, HINT};

const SHOWS: [(Show, &str); 3] =
    [(Show::Magnitude, "largest |x|"), (Show::Value, "largest, \u{b1}"), (Show::Mean, "mean |x|")];
const PROFILES: [(Profile, &str); 2] = [(Profile::MaxAbs, "max |x|"), (Profile::Norm, "norm")];
const SCALES: [(ColourScaling, &str); 3] = [
    (ColourScaling::Linear, "linear"),
    (ColourScaling::Log, "\u{b1} log"),
    (ColourScaling::Quantile, "quantile"),
];

#[derive(Properties, PartialEq)]
pub(super) struct BarProps {
    pub(super) matrix: MatrixState,
    pub(super) layer: Option<Layer>,
}

#[component]
pub(super) fn Bar(props: &BarProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let wrong = use_state(|| None::<String>);
    let matrix = &props.matrix;
    let on = |act: fn(&mut MatrixState)| actor.on(move |actor, _: MouseEvent| actor.matrix(act));
    let onkeydown = {
        let wrong = wrong.clone();
        let shape = matrix.view.shape.clone();
        actor.on(move |actor, event: KeyboardEvent| {
            let Some(input) = event.target_dyn_into::<HtmlInputElement>() else { return };
            if event.key() != "Enter" {
                return wrong.set(None);
            }
            match GoToTarget::typed(&input.value(), &shape) {
                Ok(goal) => {
                    wrong.set(None);
                    // Leaving the input lets the arrow keys move the selection from there.
                    let _ = input.blur();
                    actor.matrix(move |matrix| match goal {
                        GoToTarget::Value(number) => matrix.go(number),
                        GoToTarget::Slice(view) => matrix.show(view),
                    });
                }
                Err(error) => wrong.set(Some(error)),
            }
        })
    };
    let last: Vec<u64> = matrix.view.shape.iter().map(|dim| dim.saturating_sub(1)).collect();
    html! {
        <div class="pane-h matrix-bar">
            if let Some(layer) = &props.layer { { step(&actor, layer) }<span class="vr only-l"></span> }
            <label class="inp goto"><span class="lab">{ "go to" }</span>
                <input id="go-to" type="text" {onkeydown} placeholder={fmt::shape(&last)} aria-label="Go to the value at an index, or to a slice"
                    title={HINT} aria-invalid={wrong.is_some().to_string()} autocomplete="off" spellcheck="false" /><kbd>{ "G" }</kbd></label>
            if let Some(error) = &*wrong { <span class="w-warn" role="alert">{ prose(error) }</span> }
            { dims(&actor, matrix) }
            if !matrix.view.is_usual() {
                <button class="btn quiet small" id="matrix-whole" onclick={on(|it| it.show(MatrixView::new(&it.view.shape)))}>{ "whole tensor" }</button>
            }
            <span class="vr only-l"></span>
            <span class="step" role="group" aria-label="Zoom">
                <button aria-label="Fewer pixels per value" title="Smaller (\u{2212})" onclick={on(|it| it.magnify(-1))}>{ "\u{2212}" }</button>
                <span>{ format!("{} px per value", matrix.zoom) }</span>
                <button aria-label="More pixels per value" title="Larger (+)" onclick={on(|it| it.magnify(1))}>{ "+" }</button>
            </span>
            <button class="btn quiet small" onclick={on(MatrixState::fit)}>{ "fit " }{ cap("0") }</button>
            { chip(matrix.transposed, Some("Draw rows as columns (T)"), on(|it| it.transposed = !it.transposed), html! { <>{ "transpose " }{ cap("T") }</> }) }
            <span class="grow"></span>
            { choice(&actor, "scale", &SCALES, matrix.scaling, |it, scaling| it.scaling = scaling) }
            { choice(&actor, "show", &SHOWS, matrix.show, |it, show| it.show = show) }
            { choice(&actor, "profiles", &PROFILES, matrix.profile, |it, profile| it.profile = profile) }
        </div>
    }
}

fn step(actor: &Actor, layer: &Layer) -> Html {
    let by = |by: isize| {
        actor.on(move |actor, _: MouseEvent| actor.work(move |work| work.step_layer(by)))
    };
    html! {
        <span class="step" role="group" aria-label="Member of the fold">
            <button aria-label="Previous" title="Previous (,)" disabled={layer.at == 0} onclick={by(-1)}>{ "\u{2039}" }</button>
            <span>{ layer.text.clone() }</span>
            <button aria-label="Next" title="Next (.)" disabled={layer.at + 1 == layer.count} onclick={by(1)}>{ "\u{203a}" }</button>
        </span>
    }
}

fn choice<T: Copy + PartialEq + 'static>(
    actor: &Actor,
    name: &'static str,
    choices: &'static [(T, &'static str)],
    current: T,
    set: fn(&mut MatrixState, T),
) -> Html {
    let onchange = actor.on(move |actor, event: Event| {
        let text = chosen(&event).unwrap_or_default();
        if let Some((choice, _)) = choices.iter().find(|(_, text_of)| *text_of == text) {
            let choice = *choice;
            actor.matrix(move |matrix| set(matrix, choice));
        }
    });
    html! {
        <label class="chip menu">{ name }
            <select {onchange} aria-label={name} id={format!("matrix-{name}")}>
                { for choices.iter().map(|(choice, text)| html! { <option value={*text} selected={*choice == current}>{ *text }</option> }) }
            </select></label>
    }
}
