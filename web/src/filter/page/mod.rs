//! Help with the filter: a menu of terms, with the number of keys that each would match, and
//! suggestions for unknown terms.

pub mod terms;

use std::rc::Rc;

use yew::prelude::*;

use crate::filter::page::terms::Example;
use crate::filter::state::UnknownTerm;
use crate::page::marks::{classes, when};
use crate::page::model::actor::Actor;
use crate::state::fmt;

#[derive(Properties, PartialEq)]
pub struct MenuProps {
    /// The terms.
    pub examples: Rc<Vec<Example>>,
    /// The index of the term that arrow keys have reached.
    pub at: Option<usize>,
    /// Called when a term was chosen, to close the menu.
    pub onchoose: Callback<()>,
}

/// Returns the id of a term in the menu.
pub fn term_id(at: usize) -> String {
    format!("term-{at}")
}

/// The menu of terms, each with an example. The focus stays in the filter box, whose arrow keys move
/// through the terms.
#[component]
pub fn FilterMenu(props: &MenuProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let choice = |(at, example): (usize, &Example)| {
        let (actor, term, onchoose) = (actor.clone(), example.term.clone(), props.onchoose.clone());
        // Keeps the focus in the filter box, so that the menu does not close before the click
        // arrives.
        let onmousedown = Callback::from(|event: MouseEvent| event.prevent_default());
        let onclick = Callback::from(move |_: MouseEvent| {
            let term = term.clone();
            actor.work(move |work| work.set_filter(&term));
            onchoose.emit(());
        });
        let count = match example.count {
            Some(count) => fmt::plural(count as u64, "key"),
            None if example.of_values => "after Read values".to_owned(),
            None => String::new(),
        };
        let (on, off) = (props.at == Some(at), !example.is_usable());
        html! {
            <li id={term_id(at)} role="option" aria-selected={on.to_string()} aria-disabled={off.then_some("true")}
                class={classes(&[when(on, "on")])} onclick={(!off).then_some(onclick)} {onmousedown}>
                <code>{ &example.term }</code><span class="what">{ example.what }</span><span class="m">{ count }</span>
            </li>
        }
    };
    html! { <ul class="terms" id="terms" role="listbox" aria-label="Filter terms">{ for props.examples.iter().enumerate().map(choice) }</ul> }
}

/// Renders the underline of an unknown term, in the layer below the typed text.
pub fn underlined(text: &str) -> Html {
    match UnknownTerm::of(text) {
        Some(UnknownTerm { start, end, .. }) => html! {
            <span class="mirror" aria-hidden="true">{ text[..start].to_owned() }<u>{ text[start..end].to_owned() }</u></span>
        },
        None => html! {},
    }
}

/// Renders a suggestion for an unknown term.
pub fn suggestion(actor: &Actor, text: &str) -> Option<Html> {
    let unknown = UnknownTerm::of(text)?;
    let suggestion = unknown.suggestion?;
    let mended = format!("{}{suggestion}{}", &text[..unknown.start], &text[unknown.end..]);

    let onclick = actor.on(move |actor, _: MouseEvent| {
        let mended = mended.clone();
        actor.work(move |work| work.set_filter(&mended));
    });
    Some(html! {
        <span class="hits" role="status">{ "did you mean " }<button class="textlink m" id="meant" {onclick}>{ suggestion }</button>{ "?" }</span>
    })
}
