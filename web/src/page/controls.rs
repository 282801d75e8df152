//! Controls for the options of a conversion. Each change requests a new plan.

use statelens_formats::Choice;
use yew::prelude::*;

use crate::convert::state::Conversion;
use crate::page::choice::choice;
use crate::page::model::actor::Actor;

/// Changes the options and requests a new plan.
pub(crate) fn change(actor: &Actor, change: impl FnOnce(&mut Conversion) + 'static) {
    change_boxed(actor, Box::new(change));
}

/// Does the work of [`change`]; not generic, so that it is compiled only once.
fn change_boxed(actor: &Actor, change: Box<dyn FnOnce(&mut Conversion)>) {
    actor.convert(move |convert| {
        change(convert);
        convert.follow();
        convert.request += 1;
        convert.planning = true;
        convert.cancelled = false;
    });
}

/// Renders a labelled row of choices, the first of which is the default; empty if there are fewer
/// than two.
pub(crate) fn choices(
    actor: &Actor,
    title: &'static str,
    about: &'static str,
    list: &[Choice],
    chosen: Option<&str>,
    set: fn(&mut Conversion, Option<String>),
) -> Html {
    if list.len() < 2 {
        return html! {};
    }
    html! {
        <div class="fs"><span class="lab">{ title }</span><div>
            { radios(actor, &format!("{title}: {about}"), list, chosen, set) }
        </div></div>
    }
}

/// Renders the choices without a label.
pub(crate) fn radios(
    actor: &Actor,
    about: &str,
    list: &[Choice],
    chosen: Option<&str>,
    set: fn(&mut Conversion, Option<String>),
) -> Html {
    let first = list.first().map_or("", |choice| choice.id);
    let list: Vec<_> = list.iter().map(|choice| (choice.id.to_owned(), choice.name)).collect();
    let onchange = actor.on(move |actor, id: String| {
        change(actor, move |convert| set(convert, Some(id).filter(|id| id != first)));
    });
    choice(false, about, &list, chosen.unwrap_or(first).to_owned(), onchange)
}
