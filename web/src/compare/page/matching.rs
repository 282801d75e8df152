//! The options of a comparison: which keys are paired, and which numbers match.

use std::rc::Rc;

use yew::prelude::*;

use crate::compare::message::CompareOptions;
use crate::convert::page::edits::Lines;
use crate::page::choice::choice;
use crate::page::marks::{Copy, typed};
use crate::page::model::actor::Actor;
use crate::state::fmt;

/// Properties of the options.
#[derive(Properties, PartialEq)]
pub(super) struct MatchingProps {
    /// The current options.
    pub options: Rc<CompareOptions>,
    /// A rename rule that would make more keys match, and how many.
    pub rename: Option<(String, u64)>,
    /// The command line that does the same comparison.
    pub command: String,
}

/// The form with the options.
#[component]
pub(super) fn Matching(props: &MatchingProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let options = &props.options;
    let text = |label: &'static str,
                value: &str,
                placeholder: &'static str,
                set: fn(&mut CompareOptions, String)| {
        let onchange = actor.on(move |actor, event: Event| {
            if let Some(value) = typed(&event) {
                actor.compare(move |compare| compare.change_options(|options| set(options, value)));
            }
        });
        html! {
            <label class="field"><span class="lab">{ label }</span>
                <span class="inp"><input type="text" value={value.to_owned()} {onchange} {placeholder} autocomplete="off" autocapitalize="off" spellcheck="false" /></span></label>
        }
    };
    let rename = actor.on(move |actor, rules: Vec<String>| {
        actor.compare(move |compare| compare.change_options(|options| options.rename = rules));
    });
    let check = |id: &'static str, label: &'static str, on: bool, set: fn(&mut CompareOptions)| {
        let onchange = actor
            .on(move |actor, _: Event| actor.compare(move |compare| compare.change_options(set)));
        html! { <label class="check"><input type="checkbox" class="cb" {id} checked={on} {onchange} /><span>{ label }</span></label> }
    };
    html! {
        <div class="matching" role="group" aria-label="Matching">
            <div class="fields">
                <div class="lab">{ "Edits of the keys of A before they are matched with B" }</div>
                { text("Remove prefix", &options.strip_prefix, "e.g. model.", |options, text| options.strip_prefix = text) }
                <Lines key={options.rename.join("\n")} label="Rename" value={options.rename.clone()} late={true}
                    placeholder="regex=>replacement, with $1 for a group; one per line" onchange={rename} />
                { text("Add prefix", &options.prefix, "e.g. model.", |options, text| options.prefix = text) }
                { suggestion(&actor, props.rename.as_ref()) }
            </div>
            <div class="fields">
                <div class="lab">{ "Values match if" }</div>
                <Tolerance tolerance={options.tolerance} />
                { check("ignore-dtype", "Dtypes may differ if the numbers match", options.ignore_dtype, |options| options.ignore_dtype = !options.ignore_dtype) }
                { check("ignore-type", "An array may match a tensor", options.ignore_type, |options| options.ignore_type = !options.ignore_type) }
                { check("nan-differs", "NaN never matches NaN", options.nan_differs, |options| options.nan_differs = !options.nan_differs) }
            </div>
            if !props.command.is_empty() {
                <div class="block"><div class="lab">{ "The same on the command line" }</div>
                    <div class="cmd"><code>{ &props.command }</code><Copy text={props.command.clone()} label="command" /></div></div>
            }
        </div>
    }
}

/// Renders the suggestion of a rule that would make more keys match.
pub(super) fn suggestion(actor: &Actor, rename: Option<&(String, u64)>) -> Html {
    let Some((rule, keys)) = rename else { return html! {} };
    html! {
        <p class="dim">{ format!("{} more would match with ", fmt::plural(*keys, "key")) }<code>{ rule }</code>{ " " }{ use_rule(actor, rule) }</p>
    }
}

/// Renders a button that adds a rule to the options.
fn use_rule(actor: &Actor, rule: &str) -> Html {
    let rule = rule.to_owned();
    let onclick = actor.on(move |actor, _: MouseEvent| {
        let rule = rule.clone();
        actor.compare(move |compare| {
            compare.matching = true;
            compare.change_options(|options| options.rename.push(rule));
        });
    });
    html! { <button class="textlink" {onclick}>{ "Use it" }</button> }
}

#[derive(Properties, PartialEq)]
struct ToleranceProps {
    tolerance: Option<(f64, f64)>,
}

/// The choice between exact equality and a tolerance as in `torch.allclose`.
#[component]
fn Tolerance(props: &ToleranceProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let (relative, absolute) = props.tolerance.unwrap_or((1e-5, 1e-8));
    let onchange = actor.on(move |actor, close: bool| {
        let tolerance = close.then_some((relative, absolute));
        actor.compare(move |compare| {
            compare.change_options(|options| options.tolerance = tolerance)
        });
    });
    let number = |label: &'static str, value: f64, set: fn(&mut (f64, f64), f64)| {
        let onchange = actor.on(move |actor, event: Event| {
            let value = typed(&event).and_then(|text| text.trim().parse::<f64>().ok());
            // Invalid and negative numbers are ignored.
            if let Some(value) = value.filter(|value| *value >= 0.0) {
                actor.compare(move |compare| {
                    compare.change_options(|options| {
                        if let Some(tolerance) = &mut options.tolerance {
                            set(tolerance, value);
                        }
                    });
                });
            }
        });
        html! {
            <label class="tol"><span class="lab">{ label }</span>
                <span class="inp"><input type="text" inputmode="decimal" value={format!("{value:e}")} {onchange} /></span></label>
        }
    };
    let close = props.tolerance.is_some();
    html! {
        <div class="tolerance">
            { choice(false, "Values match if", &[(false, "equal"), (true, "close")], close, onchange) }
            if close {
                { number("rtol", relative, |tolerance, value| tolerance.0 = value) }
                { number("atol", absolute, |tolerance, value| tolerance.1 = value) }
            }
        </div>
    }
}
