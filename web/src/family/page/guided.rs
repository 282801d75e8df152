//! The form for a config that is filled in from the file.

use std::rc::Rc;

use yew::prelude::*;

use crate::family::message::NamedText;
use crate::family::page::request::set;
use crate::family::state::GuidedConfig;
use crate::page::drop::save_text;
use crate::page::marks::typed;
use crate::page::model::actor::Actor;
use crate::state::fmt;

#[derive(Properties, PartialEq)]
pub(super) struct GuidedProps {
    pub(super) config: Rc<GuidedConfig>,
}

/// The facts that were read, and inputs for the others.
#[component]
pub(super) fn GuidedForm(props: &GuidedProps) -> Html {
    let config = &props.config;
    let values =
        use_state(|| config.fields.iter().map(|it| it.value.clone()).collect::<Vec<String>>());
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let text = config.text(&values);
    let input = |at: usize| {
        let field = &config.fields[at];
        let oninput = {
            let values = values.clone();
            Callback::from(move |event: InputEvent| {
                let Some(value) = typed(&event) else { return };
                let mut next = (*values).clone();
                next[at] = value;
                values.set(next);
            })
        };
        html! {
            <label class="inp" title={if field.is_read { "From the file" } else { "Not in the file" }}><span class="lab">{ field.label }</span>
                <input type="text" inputmode="decimal" id={format!("config-{}", field.key)} value={values[at].clone()} {oninput} autocomplete="off" spellcheck="false" /></label>
        }
    };
    let key_heads = values[0].trim().parse().ok().and_then(|heads| config.key_heads(heads));
    let made = text.clone().unwrap_or_default();
    let apply = {
        let made = made.clone();
        actor.on(move |actor, _: MouseEvent| {
            let text = NamedText { name: "config.json".to_owned(), text: made.clone() };
            set(actor, move |request| (request.config, request.is_filled_in) = (Some(text), true));
        })
    };
    let save = Callback::from(move |_: MouseEvent| save_text(&made, "config.json"));
    html! {
        <div class="guided" id="guided-config">
            <p class="dim">{ "Or fill it in. The shapes say: " }
                { for config.read.iter().enumerate().map(|(at, (_, label, value))| html! { <>{ if at > 0 { ", " } else { "" } }{ *label }{ " " }<b class="m">{ fmt::exact(*value) }</b></> }) }
                { "." }</p>
            <div class="guidedfields">{ for (0..config.fields.len()).map(input) }</div>
            if let Some(heads) = key_heads { <p class="dim">{ format!("{} for keys and values, by the shapes.", fmt::plural(heads, "head")) }</p> }
            if let Err(missing) = &text { <p class="dim" id="guided-missing">{ missing }</p> }
            <div class="presets">
                <button class="btn" id="guided-use" disabled={text.is_err()} onclick={apply}>{ "Use this config" }</button>
                <button class="btn quiet" id="guided-save" disabled={text.is_err()} onclick={save}>{ "Save config.json" }</button>
            </div>
        </div>
    }
}
