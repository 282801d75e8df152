//! The section on whether the first checkpoint would load into the second.

use statelens_checkpoint::{Grade, visible};
use statelens_compare::check::CheckLine;
use yew::prelude::*;

use crate::compare::message::StateDictCheck;
use crate::compare::model::ComparisonState;
use crate::page::bars::menu;
use crate::page::marks::{Copy, breakable, chip, chosen, prose, severity, tick_icon};
use crate::page::model::actor::Actor;
use crate::state::fmt;
use crate::text::title;

/// Maximum number of lines shown: if it would not load, and if it would.
const MAX_LINES: (usize, usize) = (12, 4);

/// Renders the verdict and the obstacles.
pub(super) fn load_check(actor: &Actor, compare: &ComparisonState) -> Html {
    let Some(checked) = &compare.checked else { return html! {} };
    let strict = actor.on(move |actor, _: MouseEvent| {
        actor.compare(|compare| compare.strict = !compare.strict);
    });
    let release = actor.on(move |actor, event: Event| {
        let value = chosen(&event).unwrap_or_default();
        actor.compare(|compare| compare.release = value);
    });
    let on = compare.strict;
    let shown = if checked.loads { MAX_LINES.1 } else { MAX_LINES.0 };
    html! {
        <section class="loads" id="loads">
            <div class="hd"><h3>{ "Would A load into B?" }</h3>
                <span class="tools">
                if !checked.releases.is_empty() { { menu("release", &checked.releases, compare.release.clone(), release) } }
                { chip(on, Some("Missing and unexpected keys are errors"), strict, html! { "strict" }) }</span></div>
            <p>
                if checked.loads { <span class="w-good">{ tick_icon() }{ " Yes. " }</span> }
                else { <span class="w-warn">{ severity(Grade::Warning) }{ " No. " }</span> }
                <span class="mid-ink">{ summary(checked) }</span>
            </p>
            { for checked.of_release.iter().map(|text| html! { <p class="release">{ prose(&title(text)) }{ "." }</p> }) }
            if !checked.lines.is_empty() {
                <dl class="kv l">
                    { for checked.lines.iter().take(shown).map(line) }
                </dl>
                if checked.lines.len() > shown {
                    <p class="dim">{ format!("and {} more", fmt::exact((checked.lines.len() - shown) as u64)) }</p>
                }
            }
            if let Some((option, keys)) = &checked.rename {
                <p class="dim">{ format!("{} would match after", fmt::plural(*keys, "key")) }</p>
                <div class="cmd"><code>{ format!("statelens convert A OUT {option}") }</code><Copy text={option.clone()} label="option" /></div>
            }
        </section>
    }
}

fn summary(checked: &StateDictCheck) -> String {
    let [missing, unexpected] = checked.counts;
    let of = match (checked.states.0.as_str(), checked.states.1.as_str()) {
        ("", "") => String::new(),
        (file, "") => format!(" in the state {file} of A"),
        ("", reference) => format!(" in the state {reference} of B"),
        (state, _) => format!(" in the state {state}"),
    };
    let mut text = match checked.matching {
        1 => "1 key matches".to_owned(),
        keys => format!("{} keys match", fmt::exact(keys)),
    };
    for (count, what) in [(missing, "missing"), (unexpected, "unexpected")] {
        if count > 0 {
            text += &format!(", {} {what}", fmt::exact(count));
        }
    }
    match checked.shapes {
        0 => {}
        1 => text += ", 1 shape mismatch",
        shapes => text += &format!(", {} shape mismatches", fmt::exact(shapes)),
    }
    text += &of;
    if !checked.strict && missing + unexpected > 0 {
        text += "; mismatched keys are skipped";
    }
    if checked.prefixed {
        text += ". The trainer itself adds the prefix model. to the keys of A";
    }
    text + "."
}

fn line(line: &CheckLine) -> Html {
    let CheckLine { kind, key: name, text, keys, numbers } = line;
    let count = match (keys, numbers.as_str()) {
        (1, _) => String::new(),
        (keys, "") => format!(" \u{b7} {} keys", fmt::exact(*keys)),
        (keys, numbers) => format!(" \u{b7} {} keys, {numbers}", fmt::exact(*keys)),
    };
    html! {
        <>
            <dt>{ kind.word() }</dt>
            <dd title={visible(&format!("{name} {text}{count}"))}><span class="wrapkey">{ breakable(name) }</span><span class="tag">{ format!("{text}{count}") }</span></dd>
        </>
    }
}
