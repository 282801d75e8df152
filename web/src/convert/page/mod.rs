//! The convert sheet: the options on the left, the resulting plan on the right.

pub mod edits;
pub mod files;
pub mod running;
mod task;

use std::rc::Rc;

use statelens_checkpoint::{Grade, visible};
use statelens_formats::{Writing, writings};
use yew::prelude::*;

use crate::byte_map::page::TapeView;
use crate::byte_map::page::output_parts;
use crate::convert::message::{Loss, PlanSummary};
use crate::convert::page::running::{done_body, failed_body, running_body};
use crate::convert::state::presets::Preset;
use crate::convert::state::{Conversion, target};
use crate::page::choice::choice;
use crate::page::controls::{change, choices};
use crate::page::marks::{classes, copy, prose, severity, tick_icon, when};
use crate::page::model::actor::{Actor, has_save_dialog};
use crate::page::sheet::SheetFrame;
use crate::protocol::error::ErrorText;
use crate::state::fmt;
use crate::state::task::Task;
use crate::state::work::OpenWork;
use crate::{convert, family, repair};

/// Properties of the convert sheet.
#[derive(Properties, PartialEq)]
pub struct ConvertProps {
    /// The open checkpoint.
    pub work: OpenWork,
    /// The name to show: the folder of a set of shards, else the file.
    pub title: AttrValue,
    /// The state of the conversion.
    pub convert: Conversion,
    /// Opens the checkpoint again with ten times the limits, if a limit was reached.
    pub raise: Option<Callback<MouseEvent>>,
    /// The bytes of outputs in private storage.
    pub kept: u64,
}

#[component]
pub fn ConvertSheet(props: &ConvertProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let convert = &props.convert;
    let title = match convert.task {
        Task::Idle => "Convert",
        Task::Running(_) => "Writing",
        Task::Done(_) => "Written",
        Task::Failed(_) => "Not written",
    };
    let note = html! {
        <>
            <span class="m dim cut">{ visible(&props.title) }</span>
            <span class="dim only-l">{ "\u{2192}" }</span>
            <span class="m only-l cut">{ visible(&convert.options.name) }</span>
        </>
    };
    let body = match &convert.task {
        Task::Idle => form(&actor, props),
        Task::Running(running) => running_body(&actor, convert, &running.now, &running.past),
        Task::Done(done) => done_body(&actor, convert, done, props.kept),
        Task::Failed(error) => failed_body(&actor, convert, error, props.raise.clone()),
    };
    html! { <SheetFrame {title} {note}>{ body }</SheetFrame> }
}

fn form(actor: &Actor, props: &ConvertProps) -> Html {
    let (work, convert) = (&props.work, &props.convert);
    let Some(target) = target(&convert.options.to) else { return html! {} };
    html! {
        <>
            <div class="two" id="convert">
                <div class="formside">
                    if convert.cancelled {
                        <div class="fs" id="cancelled" role="status"><span class="lab">{ "Cancelled" }</span>
                            <span>{ "Nothing was written: the partial output is removed." }</span></div>
                    }
                    { repair::page::tasks(actor, work, convert) }
                    if let Some(rewrite) = &convert.options.rewrite {
                        { repair::page::fields(actor, work, convert, rewrite) }
                    } else {
                    { presets(actor, work, convert) }
                    { targets(actor, convert, target) }
                    if work.is_lone_array() {
                        { versions(actor, convert, target) }
                        { convert::page::edits::key_of_array(actor, convert) }
                        { convert::page::edits::cast(actor, convert) }
                        { compression(actor, convert, target) }
                    } else {
                    { family::page::recognition(actor, convert) }
                    if convert.options.family.target.is_some() {
                        { convert::page::edits::casts(actor, convert) }
                        { family::page::fields(actor, work, convert) }
                    } else {
                    { versions(actor, convert, target) }
                    { convert::page::edits::forms(actor, convert) }
                    { convert::page::edits::states(actor, work, convert) }
                    { convert::page::edits::keys(actor, convert) }
                    { convert::page::edits::casts(actor, convert) }
                    { compression(actor, convert, target) }
                    { convert::page::files::shards(actor, convert, target) }
                    { convert::page::files::objects(actor, convert, target) }
                    }
                    }
                    }
                    { name(actor, convert) }
                </div>
                <aside aria-label="Plan" aria-live="polite" tabindex={convert.options.family.target.as_ref().map(|_| "0")}>{ plan_side(actor, work, convert) }</aside>
            </div>
            { footer(actor, work, convert) }
        </>
    }
}

/// Renders a button for each conversion that is often wanted; nothing if none fits.
fn presets(actor: &Actor, work: &OpenWork, convert: &Conversion) -> Html {
    let states: Vec<String> = work.states.iter().map(|(name, _)| name.clone()).collect();
    let all = Preset::all(convert, &states, work.opened.shards);
    if all.is_empty() || work.is_lone_array() {
        return html! {};
    }
    let button = |preset: Preset| {
        let (label, note) = (preset.label(), preset.note(&work.rows));
        let states = states.clone();
        let onclick = actor.on(move |actor, _: MouseEvent| match &preset {
            Preset::Family(id, _) => family::page::choose(actor, Some(id.clone())),
            _ => {
                let (preset, states) = (preset.clone(), states.clone());
                change(actor, move |convert| preset.apply(convert, &states));
            }
        });
        html! { <button class="btn" {onclick}>{ label }<small class="dim">{ note }</small></button> }
    };
    html! {
        <div class="fs" id="presets"><span class="lab">{ "Presets" }</span>
            <div class="presets">{ for all.into_iter().map(button) }</div></div>
    }
}

/// Explanation of a conversion to a format of the model's family.
const FAMILY: &str = "Writes keys, shapes and config as that release expects. Tensors are renamed, transposed, split or merged on the way.";

fn targets(actor: &Actor, convert: &Conversion, chosen: &Writing) -> Html {
    let plain = convert.options.family.target.is_none();
    let list: Vec<_> = writings().map(|target| (target.id.to_owned(), target.label)).collect();
    let onchange = actor.on(move |actor, to: String| {
        change(actor, move |convert| {
            convert.options.to = to;
            convert.options.version = None;
            convert.options.compress = None;
            convert.options.shard_size = None;
            convert.options.shard = None;
            convert.options.object_graph = false;
            convert.options.state_file = false;
            convert.options.cast = None;
            convert.options.family.target = None;
            convert.acknowledged.clear();
        });
    });
    html! {
        <div class="fs"><span class="lab">{ "Target" }</span><div>
            <div role="radiogroup" aria-label="Target">
            { choice(false, "", &list, plain.then(|| convert.options.to.clone()), onchange) }
            { family::page::targets(actor, convert) }
            </div>
            <p class="dim">{ if plain { chosen.about } else { FAMILY } }</p>
            { family::page::unchanged_names_note(actor, convert) }
        </div></div>
    }
}

fn versions(actor: &Actor, convert: &Conversion, target: &Writing) -> Html {
    choices(
        actor,
        "Version",
        "format version",
        target.versions,
        convert.options.version.as_deref(),
        |convert, id| {
            convert.options.version = id;
        },
    )
}

fn compression(actor: &Actor, convert: &Conversion, target: &Writing) -> Html {
    choices(
        actor,
        "Compress",
        "how tensors are stored",
        target.compressions,
        convert.options.compress.as_deref(),
        |convert, id| convert.options.compress = id,
    )
}

fn name(actor: &Actor, convert: &Conversion) -> Html {
    let onchange = actor.on(move |actor, event: Event| {
        let Some(input) = event.target_dyn_into::<web_sys::HtmlInputElement>() else { return };
        let name: String = input
            .value()
            .chars()
            .filter(|c| !matches!(c, '/' | '\\' | ':' | '\0'..='\x1f'))
            .collect();
        change(actor, move |convert| {
            convert.named = !name.trim().is_empty();
            convert.options.name = name.trim().to_owned();
        });
    });
    html! {
        <div class="fs"><span class="lab">{ "Write to" }</span><div>
            <label class="inp name"><input type="text" value={convert.options.name.clone()} {onchange} aria-label="File name" spellcheck="false" /></label>
            <p class="dim">{ "Saved by the browser. The source is not changed." }</p>
        </div></div>
    }
}

fn plan_side(actor: &Actor, work: &OpenWork, convert: &Conversion) -> Html {
    match &convert.plan {
        None => html! { <div class="lab">{ "Planning\u{2026}" }</div> },
        Some(Err(error)) => {
            html! { <>{ plan_error(error) }{ keep_prefixed(actor, work, convert) }{ family::page::missing_config(actor, work, convert) }{ family::page::verdict(convert) }</> }
        }
        Some(Ok(plan)) => {
            html! { <>{ planned(actor, work, convert, plan) }{ family::page::verdict(convert) }</> }
        }
    }
}

/// Renders a button that leaves out the keys without the prefix that is to be removed; nothing if
/// that is not the problem.
fn keep_prefixed(actor: &Actor, work: &OpenWork, convert: &Conversion) -> Html {
    let prefix = &convert.options.strip_prefix;
    let plain = !prefix.is_empty() && !prefix.contains(['*', '?', '[', ']', '{', '}']);
    let pattern = format!("{prefix}*");
    let (with, without) = work.rows.iter().fold((false, false), |(with, without), row| {
        let has = row.key.starts_with(prefix);
        (with || has, without || !has)
    });
    if !(plain && with && without) || convert.options.select.contains(&pattern) {
        return html! {};
    }
    let select = pattern.clone();
    let onclick = actor.on(move |actor, _: MouseEvent| {
        let select = select.clone();
        change(actor, move |convert| {
            convert.options.select = vec![select];
            convert.included += 1;
        });
    });
    // The prefix as a regular expression.
    let mut rule = String::from("^");
    for character in prefix.chars() {
        if !character.is_alphanumeric() && character != '_' {
            rule.push('\\');
        }
        rule.push(character);
    }
    let remove = actor.on(move |actor, _: MouseEvent| {
        let rule = format!("{rule}=>");
        change(actor, move |convert| {
            convert.options.strip_prefix.clear();
            convert.options.rename.insert(0, rule);
            convert.included += 1;
        });
    });
    html! {
        <p class="presets">
            <button class="btn" id="strip-present" onclick={remove}>{ "Remove it where it is" }</button>
            <button class="btn" id="keep-prefixed" {onclick}>{ prose(&format!("Include only `{pattern}`")) }</button>
        </p>
    }
}

fn plan_error(error: &Rc<ErrorText>) -> Html {
    html! {
        <div class="refused" role="alert">
            <div class="kindline">{ severity(Grade::Warning) }<span class="w-warn">{ "Can\u{2019}t convert yet" }</span></div>
            <h3>{ prose(&error.title) }</h3>
            if !error.text.is_empty() { <p class="mid-ink">{ prose(&error.text) }</p> }
            if !error.file.is_empty() { <p class="m dim">{ crate::text::place(error) }</p> }
            { for error.next.iter().map(|(text, _)| html! { <p>{ prose(text) }</p> }) }
        </div>
    }
}

fn planned(actor: &Actor, work: &OpenWork, convert: &Conversion, plan: &PlanSummary) -> Html {
    let moved = if plan.zero_copy { "no extra memory" } else { "one 4 MB buffer" };
    let shown = convert.family.as_ref().and_then(|reply| reply.shown.as_ref());
    let keys = match shown {
        Some(shown) => format!("{} become {}", fmt::exact(shown.keys.0), fmt::exact(shown.keys.1)),
        None => format!("{} of {}", fmt::exact(plan.keys), fmt::exact(work.rows.len() as u64)),
    };
    let losses = convert.losses();
    let files = match plan.names.as_slice() {
        [] | [_] => None,
        [first, second] => Some(format!("{first}, {second}")),
        [first, .., last] => Some(format!("{}: {first} to {last}", plan.names.len())),
    };
    html! {
        <div class={classes(&["plan", when(convert.planning, "late")])}>
            <div class="lab">{ if plan.exact { "Output, exactly" } else { "Output, at most" } }</div>
            <div class="big">{ fmt::exact(plan.size) }<span class="dim unit">{ " bytes" }</span></div>
            <TapeView parts={output_parts(plan)} />
            <dl class="kv">
                <dt>{ "keys" }</dt><dd>{ keys }</dd>
                if let Some(files) = files {
                    <dt>{ "files" }</dt><dd>{ files }</dd>
                }
                <dt>{ "tensors" }</dt><dd>{ fmt::exact(plan.tensors) }</dd>
                <dt>{ "weights" }</dt><dd>{ &plan.weights }</dd>
                <dt>{ "memory" }</dt><dd>{ moved }</dd>
            </dl>
            <ul class="checks">
                { for plan.notes.iter().map(|note| html! { <li>{ severity(Grade::Note) }<span>{ prose(note) }</span></li> }) }
                if losses.is_empty() {
                    <li>{ tick_icon() }<span>{ if plan.narrows || leaves_out(convert, plan) { "nothing else is lost" } else { "nothing is lost" } }</span></li>
                }
                <li>{ severity(Grade::Note) }<span>{ if has_save_dialog() {
                    format!("Needs {} of disk space (the browser can\u{2019}t check)", fmt::bytes(plan.size))
                } else {
                    format!("Needs {} of disk space", fmt::bytes(plan.size))
                } }</span></li>
            </ul>
            if !losses.is_empty() {
                <div class="losshead"><h3>{ "Losses" }</h3>
                    <span class="lab">{ format!("{} of {} acknowledged", losses.len() - convert.unacknowledged_losses(), losses.len()) }</span></div>
                { for losses.iter().map(|loss| loss_line(actor, convert, loss)) }
            }
        </div>
    }
}

/// Returns whether anything is left out, by choice or because of the target. The sheet must not
/// claim that nothing is lost then.
fn leaves_out(convert: &Conversion, plan: &PlanSummary) -> bool {
    !plan.notes.is_empty() || !convert.excluded_states.is_empty() || plan.preview.left_out > 0
}

fn loss_line(actor: &Actor, convert: &Conversion, loss: &Loss) -> Html {
    let on = convert.acknowledged.contains(&loss.id);
    let id = loss.id.clone();
    let onchange = actor.on(move |actor, _: Event| {
        let id = id.clone();
        actor.convert(move |convert| {
            if !convert.acknowledged.remove(&id) {
                convert.acknowledged.insert(id);
            }
        });
    });
    html! {
        <label class="loss">
            <input type="checkbox" class="cb" checked={on} {onchange} />
            <span><b>{ prose(&loss.title) }</b><p>{ prose(&loss.reason) }</p></span>
        </label>
    }
}

/// Renders a button that shows the notes and losses of the plan, for sheets whose plan is below the
/// form; nothing if it has neither.
fn effects(convert: &Conversion) -> Html {
    let Some(Ok(plan)) = &convert.plan else { return html! {} };
    let count = |count: usize, word: &str| (count > 0).then(|| fmt::plural(count as u64, word));
    let losses = convert.losses().len();
    let parts = [count(losses, "loss"), count(plan.notes.len(), "note")];
    let text: Vec<String> = parts.into_iter().flatten().collect();
    if text.is_empty() {
        return html! {};
    }
    let onclick = Callback::from(|_: MouseEvent| {
        let document = web_sys::window().and_then(|window| window.document());
        let effects = document.and_then(|it| it.query_selector("#convert .checks").ok().flatten());
        if let Some(effects) = effects {
            effects.scroll_into_view();
        }
    });
    let mark = severity(if losses > 0 { Grade::Warning } else { Grade::Note });
    html! { <button class="btn quiet below" id="effects" {onclick}>{ mark }{ text.join(", ") }{ " \u{2303}" }</button> }
}

fn footer(actor: &Actor, work: &OpenWork, convert: &Conversion) -> Html {
    let plan = match &convert.plan {
        Some(Ok(plan)) => Some(plan.clone()),
        _ => None,
    };
    let command = plan.as_ref().map(|plan| plan.command.clone()).unwrap_or_default();
    let copied = command.clone();
    let oncopy = Callback::from(move |_: MouseEvent| copy(&copied));
    let open = convert.unacknowledged_losses();
    let run = {
        let (plan, request) = (plan.clone(), convert.request);
        actor.on(move |actor, _: MouseEvent| {
            if let Some(plan) = &plan {
                actor.run(request, plan, false);
            }
        })
    };
    let ready = plan.is_some() && !convert.planning && open == 0;
    let text = match (&plan, open) {
        (None, _) => "Write".to_owned(),
        (Some(_), 1) => "Acknowledge 1 loss to write".to_owned(),
        (Some(_), open) if open > 1 => format!("Acknowledge {open} losses to write"),
        (Some(plan), _) => format!("Write {}", fmt::bytes(plan.size)),
    };
    html! {
        <footer>
            <span class="grow cmdline">
                <span class="m dim only-l">{ if command.is_empty() { String::new() } else { format!("$ {command}") } }</span>
                if let Some(plan) = &plan { <span class="only-s m">{ format!("{} bytes", fmt::exact(plan.size)) }</span> }
                if let Some(Err(error)) = &convert.plan { <span class="mid-ink below" id="why-not"><span>{ prose(&error.title) }{ " " }{ family::page::fill_in(work, convert, "textlink") }</span></span> }
            </span>
            if !command.is_empty() { <button class="btn quiet only-l" onclick={oncopy}>{ "Copy command" }</button> }
            { effects(convert) }
            <button class={classes(&["btn", when(ready, "pri")])} id="write" disabled={!ready} onclick={run}>{ text }</button>
        </footer>
    }
}
