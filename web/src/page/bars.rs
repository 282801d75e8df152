//! Controls shared by the bars of several screens.

use statelens_checkpoint::visible;
use yew::prelude::*;

use crate::page::choice;
use crate::page::marks::{classes, when};
use crate::page::model::Tab;
use crate::page::model::actor::Actor;

/// Renders the button that leads back to the screen that this one was opened from.
pub(crate) fn back(to: &str, title: &'static str, onclick: Callback<MouseEvent>) -> Html {
    html! {
        <button class="btn quiet back" id="back" {title} {onclick}>
            <span aria-hidden="true">{ "\u{2039}" }</span><span class="cut">{ visible(to) }</span></button>
    }
}

/// Renders the tabs that choose the pane on a small screen. Screens with two panes have no tree.
pub(crate) fn tabs(actor: &Actor, tab: Tab, panes: &[(Tab, &'static str)]) -> Html {
    let two = panes.len() == 2;
    let tab = if two && tab == Tab::Tree { Tab::Keys } else { tab };
    html! {
        <div class={classes(&["tabs", when(two, "two")])} role="tablist" aria-label="Panes">
            { for panes.iter().map(|&(this, name)| {
                let on = tab == this;
                let onclick = actor.on(move |actor, _: MouseEvent| actor.tab(this));
                choice::tab(on, name, onclick)
            }) }
        </div>
    }
}

/// Renders a `select` styled as a chip.
pub(crate) fn menu(
    name: &'static str,
    choices: &[String],
    current: String,
    onchange: Callback<Event>,
) -> Html {
    let any = match name {
        "state" => "all",
        "sort" => "file order",
        _ => "any",
    };
    let label = if name == "sort" { "sort by".to_owned() } else { format!("{name} filter") };
    html! {
        <label class={classes(&["chip", "menu", when(!current.is_empty(), "on")])}>
            { name }
            <select {onchange} aria-label={label}>
                <option value="" selected={current.is_empty()}>{ any }</option>
                { for choices.iter().map(|choice| html! { <option value={choice.clone()} selected={*choice == current}>{ visible(choice) }</option> }) }
            </select>
        </label>
    }
}
