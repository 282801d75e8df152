//! Rewriting a checkpoint without converting it (upgrade, repair, dataloader state): the buttons
//! that offer it, and its part of the convert sheet.

use statelens_formats::Choice;
use yew::prelude::*;

use crate::convert::message::ConvertOptions;
use crate::convert::state::{Conversion, first_options};
use crate::open::message::OpenedCheckpoint;
use crate::page::choice::choice;
use crate::page::controls::{change, choices};
use crate::page::marks::{check, prose, typed};
use crate::page::model::actor::Actor;
use crate::repair::message::{Rewrite, RewriteOffer};
use crate::state::task::Task;
use crate::state::work::OpenWork;

/// Format versions that can be written, newest first, with their labels.
const VERSIONS: [Choice; 2] = [
    Choice { id: "0.5", name: "0.5, releases 2.5 to 2.10" },
    Choice { id: "0.4", name: "0.4, releases 2.0 to 2.4" },
];

/// Renders an optional rewrite, one that no finding calls for.
pub fn article(actor: &Actor, work: &OpenWork, offer: &RewriteOffer) -> Html {
    html! {
        <article class="find">
            <div class="sev dim">{ "Possible" }</div>
            <div><h3>{ &offer.label }</h3><p>{ prose(&offer.text) }</p></div>
            <div class="do">{ button(actor, work, offer, "btn") }</div>
        </article>
    }
}

/// Renders the rewrite that resolves a finding.
pub fn action(actor: &Actor, work: &OpenWork, offer: &RewriteOffer) -> Html {
    html! { <><p>{ prose(&offer.text) }</p><p>{ button(actor, work, offer, "btn pri") }</p></> }
}

/// Renders a button that opens the convert sheet for a rewrite.
fn button(actor: &Actor, work: &OpenWork, offer: &RewriteOffer, class: &'static str) -> Html {
    let (opened, offer_) = (work.opened.clone(), offer.clone());
    let onclick = actor.on(move |actor, _: MouseEvent| {
        actor.update(|model| model.start_convert());
        choose(actor, &opened, Some(&offer_.rewrite));
    });
    html! { <button {class} {onclick}>{ &offer.label }</button> }
}

/// Renders the choice of the task: a conversion, or one of the rewrites.
pub fn tasks(actor: &Actor, work: &OpenWork, convert: &Conversion) -> Html {
    let offers = &work.opened.offers;
    if offers.is_empty() {
        return html! {};
    }
    // Each kind is listed once: several findings may offer the same repair.
    let first = |at: usize, offer: &RewriteOffer| {
        !offers[..at].iter().any(|other| same_kind(Some(&other.rewrite), Some(&offer.rewrite)))
    };
    let listed = offers.iter().enumerate().filter(|(at, offer)| first(*at, offer));
    let mut list = vec![(None, "Convert")];
    list.extend(listed.map(|(at, offer)| (Some(at), &*offer.label)));
    let rewrite = convert.options.rewrite.as_ref();
    let chosen = rewrite.and_then(|rewrite| {
        offers.iter().position(|offer| same_kind(Some(rewrite), Some(&offer.rewrite)))
    });
    let about = chosen.map(|at| html! { <p class="dim">{ prose(&offers[at].text) }</p> });
    let opened = work.opened.clone();
    let onchange = actor.on(move |actor, at: Option<usize>| {
        if at != chosen {
            choose(actor, &opened, at.map(|at| &opened.offers[at].rewrite));
        }
    });
    html! {
        <div class="fs" id="tasks"><span class="lab">{ "Task" }</span><div>
            { choice(false, "Task", &list, Some(chosen), onchange) }
            { about }
        </div></div>
    }
}

/// Renders the options of a rewrite and the list of its changes.
pub fn fields(actor: &Actor, work: &OpenWork, convert: &Conversion, rewrite: &Rewrite) -> Html {
    let own = match rewrite {
        Rewrite::Upgrade { to } => {
            let other_versions = VERSIONS.iter().filter(|of| of.id != work.opened.format.version);
            let list: Vec<Choice> = other_versions.copied().collect();
            version(actor, &list, to)
        }
        Rewrite::Fix { upgrade } => {
            let checked = *upgrade;
            let onchange = actor.on(move |actor, _: Event| {
                set(actor, move |rewrite| {
                    if let Rewrite::Fix { upgrade } = rewrite {
                        *upgrade = !checked;
                    }
                });
            });
            html! {
                <div class="fs"><span class="lab">{ "Upgrade" }</span><div>
                    { check("fix-upgrade", checked, "Also write format 0.5, which releases 2.5 to 2.10 load", onchange) }
                    <p class="dim">{ prose("Same as `--upgrade`. Without it, the output matches that of the original script, for releases up to 2.5.") }</p>
                </div></div>
            }
        }
        Rewrite::Dataloader { iterable, seed, to } => dataloader(actor, *iterable, seed, to),
    };
    let changes = match &convert.plan {
        Some(Ok(plan)) => plan.changes.as_slice(),
        _ => &[],
    };
    html! {
        <>
            { own }
            if !changes.is_empty() {
                <div class="fs"><span class="lab">{ "Changes" }</span>{ list(changes) }</div>
            }
        </>
    }
}

/// Renders the list of repairs or changes.
pub fn list(lines: &[String]) -> Html {
    html! { <ul class="changes">{ for lines.iter().map(|line| html! { <li>{ prose(line) }</li> }) }</ul> }
}

fn dataloader(actor: &Actor, iterable: bool, seed: &str, to: &str) -> Html {
    let choice = |id, name| Choice { id, name };
    let kinds = [choice("map", "map"), choice("iterable", "iterable")];
    let kind = choices(
        actor,
        "Dataloader",
        "kind of dataset",
        &kinds,
        Some(if iterable { "iterable" } else { "map" }),
        |convert, id| {
            if let Some(Rewrite::Dataloader { iterable, .. }) = &mut convert.options.rewrite {
                *iterable = id.is_some();
            }
        },
    );
    let oninput = actor.on(move |actor, event: InputEvent| {
        let Some(value) = typed(&event) else { return };
        set(actor, move |rewrite| {
            if let Rewrite::Dataloader { seed, .. } = rewrite {
                *seed = value;
            }
        });
    });
    let [newer, older] = VERSIONS;
    html! {
        <>
            { kind }
            if !iterable {
                <div class="fs"><span class="lab">{ "Seed" }</span><div>
                    <label class="inp seed"><input id="seed" type="text" inputmode="numeric" value={seed.to_owned()} {oninput}
                        aria-label="Shuffle seed" autocomplete="off" spellcheck="false" /></label>
                    <p class="dim">{ "The shuffle seed of the run. It determines the order of samples." }</p>
                </div></div>
            }
            { version(actor, &[older, newer], to) }
        </>
    }
}

/// Renders the choice of the format version to write; the first of the list is the default.
fn version(actor: &Actor, list: &[Choice], to: &str) -> Html {
    choices(actor, "Version", "format version", list, Some(to), |convert, id| {
        match &mut convert.options.rewrite {
            Some(Rewrite::Upgrade { to }) => *to = id.unwrap_or("0.5".into()),
            Some(Rewrite::Dataloader { to, .. }) => *to = id.unwrap_or("0.4".into()),
            _ => {}
        }
    })
}

/// Changes the options of the chosen rewrite.
fn set(actor: &Actor, with: impl FnOnce(&mut Rewrite) + 'static) {
    change(actor, move |convert| {
        if let Some(rewrite) = &mut convert.options.rewrite {
            with(rewrite);
        }
    });
}

/// Chooses a rewrite, or a conversion with `None`.
fn choose(actor: &Actor, opened: &OpenedCheckpoint, rewrite: Option<&Rewrite>) {
    let options = match rewrite {
        None => first_options(opened),
        Some(rewrite) => Some(ConvertOptions {
            to: "cerebras".into(),
            rewrite: Some(rewrite.clone()),
            ..ConvertOptions::default()
        }),
    };
    let Some(options) = options else { return };
    change(actor, move |convert| {
        if convert.is_running() {
            return;
        }
        convert.options = options;
        convert.named = false;
        convert.excluded_states.clear();
        convert.acknowledged.clear();
        convert.plan = None;
        convert.task = Task::Idle;
    });
}

fn same_kind(one: Option<&Rewrite>, other: Option<&Rewrite>) -> bool {
    one.map(std::mem::discriminant) == other.map(std::mem::discriminant)
}
