//! Help with the filter: a menu of terms that can be asked for, with how many keys each would leave,
//! and what may have been meant by a term that there is not.

use yew::prelude::*;

use crate::page::model::actor::Actor;
use crate::state::filter::Unknown;
use crate::state::fmt;
use crate::state::terms::{Example, examples};
use crate::state::work::OpenWork;

/// The menu.
#[derive(Properties, PartialEq)]
pub struct MenuProps {
    /// The open checkpoint.
    pub work: OpenWork,
    /// Shuts the menu.
    pub onchoose: Callback<()>,
    /// The focus goes from one of its terms to somewhere else.
    pub onleave: Callback<FocusEvent>,
}

/// Terms with an example each.
#[component]
pub fn FilterMenu(props: &MenuProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let examples = use_memo((), |()| examples(&props.work));
    let choice = |example: &Example| {
        let (actor, term, onchoose) = (actor.clone(), example.term.clone(), props.onchoose.clone());
        // The box keeps the focus, and the menu is not shut before it is heard.
        let onmousedown = Callback::from(|event: MouseEvent| event.prevent_default());
        let onclick = Callback::from(move |_: MouseEvent| {
            let term = term.clone();
            actor.work(move |work| work.set_filter(&term));
            onchoose.emit(());
        });
        let count = match example.count {
            Some(count) => fmt::plural(count as u64, "key"),
            None if example.of_values => "after Scan values".to_owned(),
            None => String::new(),
        };
        html! {
            <li><button {onclick} {onmousedown} disabled={example.count.is_none() && example.of_values}>
                <code>{ &example.term }</code><span class="what">{ example.what }</span><span class="m">{ count }</span>
            </button></li>
        }
    };
    html! { <ul class="terms" id="terms" aria-label="What can be asked for" onfocusout={props.onleave.clone()}>{ for examples.iter().map(choice) }</ul> }
}

/// Underlines a term that there is not, behind what is typed.
pub fn underlined(text: &str) -> Html {
    match Unknown::of(text) {
        Some(Unknown { start, end, .. }) => html! {
            <span class="mirror" aria-hidden="true">{ text[..start].to_owned() }<u>{ text[start..end].to_owned() }</u></span>
        },
        None => html! {},
    }
}

/// What may have been meant by it.
pub fn meant(actor: &Actor, text: &str) -> Option<Html> {
    let unknown = Unknown::of(text)?;
    let meant = unknown.meant?;
    let mended = format!("{}{meant}{}", &text[..unknown.start], &text[unknown.end..]);
    let actor = actor.clone();
    let onclick = Callback::from(move |_: MouseEvent| {
        let mended = mended.clone();
        actor.work(move |work| work.set_filter(&mended));
    });
    Some(html! {
        <span class="hits" role="status">{ "did you mean " }<button class="textlink m" id="meant" {onclick}>{ meant }</button>{ "?" }</span>
    })
}
