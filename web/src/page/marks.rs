//! Small building blocks: icons, dtype gauges, keys shortened in the middle, copy buttons.

use statelens_checkpoint::{Grade, visible};
use statelens_describe::fold::Sums;
use statelens_describe::grade_word;
use wasm_bindgen_futures::{JsFuture, spawn_local};
use yew::prelude::*;

use crate::state::dtype::{family, gauge, short, title};
use crate::state::fmt::{self, key_parts};

/// Renders the logo: a scale and a lens.
pub fn logo() -> Html {
    html! {
        <span class="mark">
            <svg width="20" height="20" viewBox="0 0 24 24" aria-hidden="true" fill="none">
                <path d="M2.5 3v18M2.5 5h9M2.5 12h5M2.5 19h9" stroke="currentColor" stroke-width="1.5" />
                <circle cx="15" cy="12" r="7" stroke="var(--accent)" stroke-width="1.75" />
                <path d="M8.5 12h10.5" stroke="var(--accent)" stroke-width="3" />
            </svg>
            <b>{ "Statelens" }</b>
        </span>
    }
}

/// The fill of a part that is damaged or missing; [`hatching`] defines it.
pub const HATCHED: &str = "url(#hatching)";

/// Defines [`HATCHED`]. The page has it once, outside everything that may be hidden: an id must be
/// unique, and a pattern within a hidden element is not drawn.
pub fn hatching() -> Html {
    html! {
        <svg width="0" height="0" style="position:absolute" aria-hidden="true">
            <defs><pattern id="hatching" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
                <rect width="5" height="5" fill="var(--paper)" /><rect width="2" height="5" fill="var(--warn)" />
            </pattern></defs>
        </svg>
    }
}

/// Returns CSS classes; empty names are skipped.
pub fn classes(names: &[&'static str]) -> Classes {
    names.iter().copied().filter(|name| !name.is_empty()).collect()
}

/// Returns the class name if `holds`, else an empty name.
pub fn when(holds: bool, class: &'static str) -> &'static str {
    if holds { class } else { "" }
}

/// Tooltip of the chips that fold layers.
pub const FOLD: Option<&str> = Some("Fold repeated layers (L)");

/// Returns the text of the event's input field.
pub fn typed(event: &Event) -> Option<String> {
    event.target_dyn_into::<web_sys::HtmlInputElement>().map(|input| input.value())
}

/// Returns the value chosen in the event's `select`.
pub fn chosen(event: &Event) -> Option<String> {
    event.target_dyn_into::<web_sys::HtmlSelectElement>().map(|list| list.value())
}

/// Renders a labelled check box.
pub fn check(id: &'static str, on: bool, text: &str, onchange: Callback<Event>) -> Html {
    html! {
        <label class="check one"><input type="checkbox" class="cb" {id} checked={on} {onchange} /><span>{ prose(text) }</span></label>
    }
}

/// Renders a toggle chip.
pub fn chip(
    on: bool,
    title: Option<&'static str>,
    onclick: Callback<MouseEvent>,
    content: Html,
) -> Html {
    html! {
        <button class={classes(&["chip", when(on, "on")])} aria-pressed={on.to_string()} {title} {onclick}>{ content }</button>
    }
}

pub fn tick_icon() -> Html {
    html! {
        <svg class="fi good" viewBox="0 0 12 12" aria-hidden="true">
            <path d="m1.5 6.5 3 3 6-7" fill="none" stroke="currentColor" stroke-width="2" />
        </svg>
    }
}

/// Renders the icon of a severity: octagon, triangle or ring.
pub fn severity(severity: Grade) -> Html {
    match severity {
        Grade::Danger | Grade::UnknownCode | Grade::Damage => html! {
            <svg class="fi danger" viewBox="0 0 12 12" aria-hidden="true">
                <path d="M4 .5h4L11.5 4v4L8 11.5H4L.5 8V4z" fill="currentColor" />
                <path d="M6 2.8v4" stroke="var(--paper)" stroke-width="1.6" />
                <circle cx="6" cy="8.8" r="1" fill="var(--paper)" />
            </svg>
        },
        Grade::Warning => html! {
            <svg class="fi warn" viewBox="0 0 12 12" aria-hidden="true">
                <path d="M6 .6 11.6 11H.4z" fill="currentColor" />
                <path d="M6 4.2v3.4" stroke="var(--paper)" stroke-width="1.4" />
                <circle cx="6" cy="9.2" r=".85" fill="var(--paper)" />
            </svg>
        },
        Grade::Note => html! {
            <svg class="fi note" viewBox="0 0 12 12" aria-hidden="true">
                <circle cx="6" cy="6" r="4.8" fill="none" stroke="currentColor" stroke-width="1.4" />
                <path d="M6 5.4v3.2M6 3.2v1.2" stroke="currentColor" stroke-width="1.3" />
            </svg>
        },
    }
}

/// Formats a number of findings of a severity: `2 warnings`, `damage in 3 places`.
pub fn severity_count(severity: Grade, count: u64) -> String {
    match (severity, count) {
        (Grade::Damage | Grade::UnknownCode, 1) => grade_word(severity).to_owned(),
        (Grade::Damage | Grade::UnknownCode, _) => {
            format!("{} in {} places", grade_word(severity), fmt::exact(count))
        }
        _ => fmt::plural(count, grade_word(severity)),
    }
}

/// Renders a cross, for closing.
pub fn close_icon() -> Html {
    html! {
        <svg width="12" height="12" viewBox="0 0 12 12" stroke="currentColor" stroke-width="1.3" aria-hidden="true">
            <path d="m1 1 10 10M11 1 1 11" />
        </svg>
    }
}

/// Renders the gauge and the name of a dtype.
pub fn dtype(name: &str) -> Html {
    html! {
        <span class={classes(&["dt", gauge(name), family(name).class()])} title={title(name)}>
            <i></i>{ short(name) }
        </span>
    }
}

/// Renders the hollow mark and the kind of a value that is not a tensor.
pub fn value_kind(word: &str) -> Html {
    html! { <span class="dt val"><i></i>{ word.to_owned() }</span> }
}

/// Renders a key, with invisible characters escaped. The prefix is dimmed and shortened first,
/// except for the layer number.
pub fn key(text: &str) -> Html {
    let parts = parts_of_key(&visible(text)).into_iter();
    html! { <span class="key">{ for parts.map(|(class, text)| html! { <span {class}>{ text }</span> }) }</span> }
}

/// Returns the parts of a key with their CSS classes: the prefix, the layer number and the end.
pub fn parts_of_key(text: &str) -> Vec<(&'static str, String)> {
    let (head, tail) = key_parts(text);
    let (head, layer) = head.split_at(layer_at(head));
    let parts = [("a", head), ("n", layer), ("z", tail)].into_iter();
    parts
        .filter(|(_, text)| !text.is_empty())
        .map(|(class, text)| (class, text.to_owned()))
        .collect()
}

/// Renders a key that preferably wraps after its dots. The segments that differ from `other` are
/// marked.
pub fn changed_key(text: &str, other: &str) -> Html {
    let (start, end) = changed_part(text, other);
    let (head, changed, tail) = (&text[..start], &text[start..end], &text[end..]);
    html! {
        <span class="key">
            if !head.is_empty() { <span class="a">{ breakable(head) }</span> }
            if !changed.is_empty() { <mark class="chg">{ breakable(changed) }</mark> }
            if !tail.is_empty() { <span class="z">{ breakable(tail) }</span> }
        </span>
    }
}

/// Returns the byte range of the segments of `text` that differ from `other`.
fn changed_part(text: &str, other: &str) -> (usize, usize) {
    let parts = |key: &str| key.split_inclusive('.').map(str::len).collect::<Vec<_>>();
    let (own, others) = (parts(text), parts(other));
    let (mut start, mut start_other) = (0, 0);
    for (one, another) in own.iter().zip(&others) {
        if text.get(start..start + one) != other.get(start_other..start_other + another) {
            break;
        }
        (start, start_other) = (start + one, start_other + another);
    }
    let (mut end, mut end_other) = (text.len(), other.len());
    for (one, another) in own.iter().rev().zip(others.iter().rev()) {
        let same = text.get(end.saturating_sub(*one)..end)
            == other.get(end_other.saturating_sub(*another)..end_other);
        if !same || end - one < start || end_other - another < start_other {
            break;
        }
        (end, end_other) = (end - one, end_other - another);
    }
    (start, end)
}

/// Returns the offset of the last segment that is a number, or the length of `head`.
fn layer_at(head: &str) -> usize {
    let mut at = head.len();
    let parts: Vec<&str> = head.split_inclusive(['.', '/']).collect();
    for part in parts.into_iter().rev() {
        at -= part.len();
        let number = part.trim_end_matches(['.', '/']);
        if !number.is_empty() && number.chars().all(|c| c.is_ascii_digit()) {
            return at;
        }
    }
    head.len()
}

/// Renders a key that wraps after its dots. A very long key is shortened and can be expanded.
pub fn wrapped_key(text: &str) -> Html {
    let text = &visible(text);
    let Some((start, end)) = fmt::ends(text) else { return whole_key(text) };
    html! {
        <details class="longkey">
            <summary>
                <span class="wrapkey">{ start.to_owned() }<span class="dim">{ " \u{2026} " }</span>{ end.to_owned() }</span>
                <span class="textlink">{ format!("all {} characters", fmt::exact(text.chars().count() as u64)) }</span>
            </summary>
            { whole_key(text) }
        </details>
    }
}

/// Renders a text. A very long one is shortened, with the whole text as its tooltip.
pub fn cut_text(text: &str) -> Html {
    match fmt::ends(text) {
        Some(_) => html! { <span title={text.to_owned()}>{ fmt::shortened(text) }</span> },
        None => html! { { text.to_owned() } },
    }
}

/// Renders a key that preferably wraps after its dots. A very long one is shortened.
pub fn breakable(text: &str) -> Html {
    let text = &visible(text);
    match fmt::ends(text) {
        Some(_) => cut_text(text),
        None => pieces(text),
    }
}

/// Renders a text as lines of these lengths in bytes. It is given as parts with their CSS classes.
pub fn lined(parts: &[(&'static str, &str)], lines: impl Iterator<Item = usize>) -> Html {
    let mut left = parts.iter().copied();
    let (mut class, mut rest) = left.next().unwrap_or_default();
    let line = |mut length: usize| {
        let mut spans = Vec::new();
        loop {
            let (here, later) = rest.split_at(length.min(rest.len()));
            if !here.is_empty() {
                spans.push(html! { <span {class}>{ here.to_owned() }</span> });
            }
            (length, rest) = (length - here.len(), later);
            if length == 0 {
                break html! { <>{ for spans }</> };
            }
            match left.next() {
                Some(next) => (class, rest) = next,
                None => break html! { <>{ for spans }</> },
            }
        }
    };
    let lines: Vec<Html> = lines.map(line).collect();
    let count = lines.len();
    // A break that the style sheet makes is not copied with the text.
    let ended =
        |(at, line)| html! { <>{ line }if at + 1 < count { <span class="newline"></span> }</> };
    lines.into_iter().enumerate().map(ended).collect()
}

fn pieces(text: &str) -> Html {
    let parts = text.split_inclusive(['.', '/']);
    parts.map(|part| html! { <>{ part.to_owned() }<wbr /></> }).collect()
}

fn whole_key(text: &str) -> Html {
    let (head, tail) = key_parts(text);
    let rest = &text[head.len() + tail.len()..];
    html! {
        <div class="wrapkey">
            <span class="a">{ pieces(head) }</span>{ pieces(tail) }<span class="a">{ pieces(rest) }</span>
        </div>
    }
}

/// Properties of a copy button.
#[derive(Properties, PartialEq)]
pub struct CopyProps {
    pub text: AttrValue,
    /// The kind of the text, for the label, such as "key".
    pub label: AttrValue,
}

/// Renders a sentence, with text between backquotes as code.
pub fn prose(text: &str) -> Html {
    text.split('`')
        .enumerate()
        .map(|(at, part)| {
            if at % 2 == 1 {
                html! { <code>{ pieces(&visible(part)) }</code> }
            } else {
                html! { { part.to_owned() } }
            }
        })
        .collect()
}

/// A copy button. After copying it becomes a tick for a moment, and a live region announces it.
#[component]
pub fn Copy(props: &CopyProps) -> Html {
    let done = use_state(|| false);
    let onclick = {
        let (done, text) = (done.clone(), props.text.clone());
        Callback::from(move |_: MouseEvent| {
            copy(&text);
            done.set(true);
            let done = done.clone();
            gloo_timers::callback::Timeout::new(1200, move || done.set(false)).forget();
        })
    };
    let label = format!("Copy {}", props.label);
    html! {
        <button class="ico" {onclick} aria-label={label.clone()} title={label}>
            if *done {
                { tick_icon() }
                <span class="vh" role="status">{ "Copied" }</span>
            } else {
                <svg width="12" height="12" viewBox="0 0 12 12" fill="none" stroke="currentColor" aria-hidden="true">
                    <rect x=".5" y="3.5" width="8" height="8" />
                    <path d="M3.5 3.5v-3h8v8h-3" />
                </svg>
            }
        </button>
    }
}

/// Copies text to the clipboard. Errors are ignored: a browser that refuses informs the user
/// itself.
pub fn copy(text: &str) {
    let Some(window) = web_sys::window() else { return };
    let promise = window.navigator().clipboard().write_text(text);
    spawn_local(async move {
        let _ = JsFuture::from(promise).await;
    });
}

/// Renders a key cap.
pub fn cap(text: &str) -> Html {
    html! { <kbd>{ text.to_owned() }</kbd> }
}

/// Describes the contents of a state: `291 tensors, 304 values`.
pub fn contents_text(sums: &Sums) -> String {
    match (sums.tensors, sums.values) {
        (0, values) => fmt::plural(values, "value"),
        (tensors, 0) => fmt::plural(tensors, "tensor"),
        (tensors, values) => {
            format!("{}, {}", fmt::plural(tensors, "tensor"), fmt::plural(values, "value"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_changed_segments() {
        let changed = |text: &str, other: &str| {
            let (start, end) = changed_part(text, other);
            text[start..end].to_owned()
        };
        let (old, new) = ("model.layers.0.self_attn.q.weight", "model.layers.0.attention.q.weight");
        assert_eq!(
            (changed(old, new), changed(new, old)),
            ("self_attn.".into(), "attention.".into())
        );
        assert_eq!(
            (changed("model.a.b", "a.b"), changed("a.b", "model.a.b")),
            ("model.".into(), String::new())
        );
        assert_eq!(changed("a.b", "a.b"), "");
        assert_eq!(changed("a.a", "a.a.a"), "");
        assert_eq!(changed("a.a.a", "a.a"), "a.");
        assert_eq!(changed("weight", "bias"), "weight");
    }
}
