//! The choice between a few values, as a row of buttons.

use yew::prelude::*;

use crate::page::marks::{classes, when};

/// Renders a group of radio buttons, one for each value of the list, with its name. Arrow keys move
/// between them, so Tab reaches only the chosen one, or the first one if the chosen value is not in
/// the list.
///
/// Without a label, the buttons belong to the group around them; `chosen` is `None` if another
/// button of that group is chosen.
pub fn choice<T: Clone + PartialEq + 'static>(
    small: bool,
    label: &str,
    list: &[(T, &str)],
    chosen: impl Into<Option<T>>,
    onchange: Callback<T>,
) -> Html {
    let chosen = chosen.into();
    let on = chosen.as_ref().and_then(|chosen| list.iter().position(|(value, _)| value == chosen));
    let reached = on.or(chosen.map(|_| 0));
    let (values, names): (Vec<T>, Vec<&str>) = list.iter().cloned().unzip();
    let onclick =
        move |at: usize| values.get(at).into_iter().for_each(|value| onchange.emit(value.clone()));
    group(small, label, &names, (on, reached), &Callback::from(onclick))
}

/// Renders the group; not generic, so that it is compiled only once.
fn group(
    small: bool,
    label: &str,
    names: &[&str],
    (on, reached): (Option<usize>, Option<usize>),
    onclick: &Callback<usize>,
) -> Html {
    let label = Some(label.to_owned()).filter(|label| !label.is_empty());
    let button = |(at, name): (usize, &&str)| {
        let onclick = onclick.reform(move |_: MouseEvent| at);
        button("radio", on == Some(at), reached == Some(at), name, onclick)
    };
    html! {
        <span class={classes(&["seg", when(small, "small")])} role={label.is_some().then_some("radiogroup")} aria-label={label}>
            { for names.iter().enumerate().map(button) }
        </span>
    }
}

/// Renders a tab of a tab list, whose arrow keys work as those of a [`choice`].
pub fn tab(on: bool, name: &str, onclick: Callback<MouseEvent>) -> Html {
    button("tab", on, on, name, onclick)
}

fn button(
    role: &'static str,
    on: bool,
    reached: bool,
    name: &str,
    onclick: Callback<MouseEvent>,
) -> Html {
    let on_text = Some(if on { "true" } else { "false" });
    let (checked, selected) = if role == "tab" { (None, on_text) } else { (on_text, None) };
    html! {
        <button {role} tabindex={if reached { "0" } else { "-1" }} aria-checked={checked} aria-selected={selected} class={classes(&[when(on, "on")])} {onclick}>{ name.to_owned() }</button>
    }
}

/// Returns a callback that stores a value in the state of a component.
pub fn store<T: 'static>(state: &UseStateHandle<T>) -> Callback<T> {
    let setter = state.setter();
    Callback::from(move |value| setter.set(value))
}
