//! The right pane of a run folder: the selected file, the reason for autoload's choice,
//! disagreements of the index, and what a pruning would free.

use std::rc::Rc;

use statelens_checkpoint::{Grade, visible};
use statelens_compare::runs::{INDEX, RunFile};
use yew::prelude::*;

use super::words::{is_cerebras, kind_word, notes, shown_states};
use crate::page::marks::{Copy, cap, prose, severity};
use crate::page::model::actor::Actor;
use crate::run_folder::model::RunView;
use crate::run_folder::state::{step, timestamp};
use crate::state::fmt;
use crate::text::sentence;

/// Maximum number of names listed; the rest is counted.
const MAX_NAMED: usize = 8;

#[derive(Properties, PartialEq)]
pub(super) struct RunDetailsProps {
    pub(super) view: Rc<RunView>,
}

#[component]
pub(super) fn RunDetails(props: &RunDetailsProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let view = &props.view;
    html! {
        <aside class="insp" aria-label="Details">
            <h2 class="vh">{ "Details" }</h2>
            { selected_file(&actor, view) }
            { autoload(view) }
            { index(view) }
            { prune(&actor, view) }
        </aside>
    }
}

fn selected_file(actor: &Actor, view: &Rc<RunView>) -> Html {
    let (Some(row), Some(entry)) = (view.row(), view.entry()) else { return html! {} };
    let checks = view.checks.get(row.entry).and_then(Option::as_ref);
    let open = {
        let view = view.clone();
        actor.on(move |actor, _: MouseEvent| {
            super::open(&view, actor);
        })
    };
    let states = checks.map(|checks| shown_states(&checks.states).join(", ")).unwrap_or_default();
    let facts = [
        ("kind", kind_word(&entry.kind).to_owned()),
        (
            "step",
            step(entry)
                .and_then(|step| u64::try_from(step).ok())
                .map(fmt::exact)
                .unwrap_or_default(),
        ),
        ("timestamp in name", timestamp(entry).unwrap_or_default()),
        (
            "of",
            match &entry.kind {
                RunFile::Subset { of, .. } => of.clone(),
                _ => String::new(),
            },
        ),
        ("bytes", fmt::exact(entry.bytes)),
        ("states", states),
    ];
    html! {
        <section>
            <div class="hd"><span class="wrapkey">{ &entry.name }</span><span class="tools"><Copy text={entry.name.clone()} label="name" /></span></div>
            <dl class="kv">{ for facts.into_iter().filter(|(_, value)| !value.is_empty()).map(|(label, value)| html! { <><dt>{ label }</dt><dd>{ value }</dd></> }) }</dl>
            { for notes(view, row.entry).into_iter().map(|note| html! { <p class="warnline">{ severity(Grade::Warning) }<span>{ prose(&sentence(&note)) }</span></p> }) }
            if view.can_open() { <p><button class="btn" id="open-it" onclick={open}>{ "Open it" }<span class="only-l">{ " " }{ cap("\u{23ce}") }</span></button></p> }
        </section>
    }
}

fn autoload(view: &RunView) -> Html {
    let run = &view.sorted.run;
    let reason = match (&run.latest, run.indexed) {
        (Some(_), true) => {
            "Among the checkpoints that are both in the index and in the folder: the highest step, then the newest timestamp in the name. A name without a timestamp counts as the oldest; the file\u{2019}s own date is never used."
        }
        (Some(_), false) if !is_cerebras(view) => {
            "It has the highest step, or the folder has a file that names it."
        }
        (Some(_), false) => {
            "The highest step, then the newest timestamp in the name. A name without a timestamp counts as the oldest; the file\u{2019}s own date is never used. Subsets and leftovers don\u{2019}t match the pattern."
        }
        (None, _) if view.sorted.error.is_some() => {
            "The index can\u{2019}t be parsed, so it is unknown which checkpoint would be loaded."
        }
        (None, _) if run.absent_latest.is_some() => {
            "The folder has a file that names a checkpoint, which is not there, so nothing is loaded:"
        }
        (None, true) => {
            "The folder has none of the checkpoints in the index, so nothing is loaded."
        }
        (None, false) => "No file name matches the pattern of checkpoints, so nothing is loaded.",
    };
    let title =
        if run.latest.is_some() { "Why autoload picks it" } else { "Autoload picks nothing" };
    html! {
        <section id="autoload">
            <div class="hd"><h3>{ title }</h3></div>
            <p class="small mid-ink">{ reason }</p>
            if let Some(latest) = run.latest.as_ref().or(run.absent_latest.as_ref()) { <div class="wrapkey" id="latest">{ visible(latest) }</div> }
            { command(view) }
        </section>
    }
}

/// Renders the command that prints the checkpoint that the main button opens.
fn command(view: &RunView) -> Html {
    let Some(pick) = view.pick() else { return html! {} };
    let differs = pick.loaded.is_some() || view.sorted.run.latest.is_none();
    let sound = if differs { " --sound" } else { "" };
    let command = format!("statelens latest {}{sound}", folder_argument(view));
    html! {
        <>
            if pick.loaded.is_some() { <p class="warnline">{ severity(Grade::Warning) }<span>{ "It is not sound. This command prints the newest sound one:" }</span></p> }
            <div class="cmd"><code>{ &command }</code><Copy text={command.clone()} label="command" /></div>
        </>
    }
}

/// Returns the folder, quoted for a shell.
fn folder_argument(view: &RunView) -> String {
    fmt::quoted(if view.folder.is_empty() { "." } else { view.folder.as_str() })
}

fn index(view: &RunView) -> Html {
    let sorted = &view.sorted;
    let run = &sorted.run;
    if let Some(error) = &sorted.error {
        return html! {
            <section><div class="hd"><h3>{ INDEX }</h3></div>
                <p class="warnline">{ severity(Grade::Warning) }<span>{ error }</span></p></section>
        };
    }
    if !run.indexed {
        return html! {};
    }
    let list = |title: &'static str, names: &[String]| {
        if names.is_empty() {
            return html! {};
        }
        html! {
            <>
                <p class="warnline">{ severity(Grade::Warning) }<span>{ title }</span></p>
                <ul class="names">{ for names.iter().take(MAX_NAMED).map(|name| html! { <li title={visible(name)}>{ visible(name) }</li> }) }
                    if names.len() > MAX_NAMED { <li class="dim">{ format!("and {} more", names.len() - MAX_NAMED) }</li> }</ul>
            </>
        }
    };
    let agrees = run.only_index.is_empty() && run.only_folder.is_empty();
    html! {
        <section id="index">
            <div class="hd"><h3>{ INDEX }</h3><span class="lab">{ match sorted.listed { 1 => "1 entry".to_owned(), count => format!("{} entries", fmt::exact(count as u64)) } }</span></div>
            if agrees { <p class="small mid-ink">{ "It lists the content of the folder." }</p> }
            { list("Listed, but not in the folder:", &run.only_index) }
            { list("In the folder but not listed; autoload skips them:", &run.only_folder) }
        </section>
    }
}

fn prune(actor: &Actor, view: &RunView) -> Html {
    let pruned = view.prunable();
    let freed = pruned.iter().map(|entry| entry.bytes).fold(0, u64::saturating_add);
    let all = view.sorted.run.entries.iter().map(|entry| entry.bytes).fold(0, u64::saturating_add);
    if view.sorted.run.checkpoints().count() < 2 {
        return html! {};
    }
    let number = |label: &'static str,
                  value: u64,
                  unit: &'static str,
                  set: fn(&mut RunView, u64)| {
        let oninput = actor.on(move |actor, event: InputEvent| {
            let Some(input) = event.target_dyn_into::<web_sys::HtmlInputElement>() else { return };
            let number = input.value().trim().parse::<u64>().unwrap_or(0);
            actor.run_folder(move |view| set(view, number));
        });
        html! {
            <label><span>{ label }</span><span class="inp"><input type="text" inputmode="numeric" value={if value == 0 { String::new() } else { value.to_string() }} placeholder="none" {oninput} /></span>
                <span class="dim">{ unit }</span></label>
        }
    };
    let every = if view.every > 0 { format!(" --every {}", view.every) } else { String::new() };
    let (folder, keep) = (folder_argument(view), view.keep.max(1));
    let command = format!("statelens prune {folder} --keep {keep}{every}");
    let share = freed as f64 / all.max(1) as f64;
    let plan = match view.values.read.is_empty() {
        true => "The command shows the same plan, and carries it out with ",
        false => {
            "Save the values that were read in the folder: the command then shows the same plan. It carries it out with "
        }
    };
    html! {
        <section id="prune">
            <div class="hd"><h3>{ "Prune plan" }</h3><span class="lab">{ "nothing is deleted here" }</span></div>
            <div class="big">{ fmt::bytes(freed) }<span class="unit dim">{ format!(" in {} would be deleted", fmt::plural(pruned.len() as u64, "file")) }</span></div>
            <div class="share2" style={format!("--w:{:.2}%", (1.0 - share) * 100.0)}><i></i></div>
            <div class="ends"><span>{ format!("keeps {}", fmt::bytes(all - freed)) }</span><span>{ format!("{} %", fmt::percent(freed, all.max(1))) }</span></div>
            <div class="rules">
                { number("keep the newest", view.keep, "", |view, keep| view.keep = keep) }
                { number("and every", view.every, "steps", |view, every| view.every = every) }
            </div>
            <div class="cmd"><code>{ &command }</code><Copy text={command.clone()} label="command" /></div>
            <p class="small dim">{ plan }<code>{ "--apply" }</code>{ ". The checkpoint that autoload picks, the newest sound one and subsets always stay. Checkpoints that are not sound don\u{2019}t count as kept." }</p>
        </section>
    }
}
