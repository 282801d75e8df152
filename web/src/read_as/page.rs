//! The choice of a dtype for arrays that are stored without one.

use statelens_checkpoint::visible;
use yew::prelude::*;

use crate::page::marks::chosen;
use crate::read_as::message::{ONE_BYTE, ReadAs, TWO_BYTES};
use crate::rows::Row;
use crate::state::fmt;
use crate::state::work::OpenWork;

/// The chosen dtypes, and the callback that opens the checkpoint again with others.
#[derive(Clone, PartialEq)]
pub struct ReadAsChoice {
    pub current: ReadAs,
    pub onchange: Callback<ReadAs>,
}

/// Returns the size of the elements of an array that is stored without a dtype.
pub fn untyped_size(row: &Row) -> Option<u8> {
    match row.dtype.as_str() {
        "void8" => Some(1),
        "void16" => Some(2),
        _ => None,
    }
}

/// Renders the choices with a heading; nothing if all arrays are stored with a dtype.
pub fn section(choice: &ReadAsChoice, work: &OpenWork) -> Html {
    if choice.current == ReadAs::default()
        && !work.rows.iter().any(|row| untyped_size(row).is_some())
    {
        return html! {};
    }
    html! {
        <section id="read-as">
            <div class="hd"><h3>{ "Stored without a dtype" }</h3></div>
            { choices(choice, work) }
        </section>
    }
}

/// Renders the choices for the sizes of elements that the checkpoint has.
pub fn choices(choice: &ReadAsChoice, work: &OpenWork) -> Html {
    let count = |size: u8| {
        let all = work.rows.iter().filter(|row| untyped_size(row) == Some(size));
        all.count() as u64
    };
    let (ones, twos) = (count(1), count(2));
    let current = choice.current;
    html! {
        <>
            <p class="mid-ink">{ "NumPy stores bfloat16 and float8 as plain bytes. Choose the dtype that was written." }</p>
            if ones > 0 || current.one.is_some() {
                { select(choice, "one", &label(ones, "1 byte"), &ONE_BYTE, current.one, |it, at| it.one = at) }
            }
            if twos > 0 || current.two.is_some() {
                { select(choice, "two", &label(twos, "2 bytes"), &TWO_BYTES, current.two, |it, at| it.two = at) }
            }
        </>
    }
}

fn label(count: u64, size: &str) -> String {
    match count {
        0 => format!("elements of {size}"),
        _ => format!("{} of {size}", fmt::plural(count, "array")),
    }
}

fn select(
    choice: &ReadAsChoice,
    elements: &'static str,
    label: &str,
    dtypes: &'static [&'static str],
    at: Option<u8>,
    set: fn(&mut ReadAs, Option<u8>),
) -> Html {
    let (onchange, current) = (choice.onchange.clone(), choice.current);
    let onchange = Callback::from(move |event: Event| {
        let value = chosen(&event).unwrap_or_default();
        let at = dtypes.iter().position(|dtype| *dtype == value);
        let mut next = current;
        set(&mut next, at.map(|at| at as u8));
        onchange.emit(next);
    });
    html! {
        <label class="readas"><span>{ visible(label) }</span>
            <span class="inp pick"><select data-read-as={elements} {onchange}>
                <option value="" selected={at.is_none()}>{ "bytes" }</option>
                { for (0..).zip(dtypes).map(|(number, dtype)| html! {
                    <option value={*dtype} selected={at == Some(number)}>{ *dtype }</option>
                }) }
            </select></span></label>
    }
}
