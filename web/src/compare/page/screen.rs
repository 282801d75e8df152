//! The comparison screen: both checkpoints, the verdict, the table, the details.

use std::rc::Rc;

use statelens_checkpoint::{Grade, visible};
use statelens_compare::diff::DifferenceKind;
use statelens_describe::FileGrade;
use yew::prelude::*;

use super::detail::Detail;
use super::layers::errors;
use super::matching::{Matching, suggestion};
use super::renames::renames;
use super::summary::summary;
use super::table::{DifferenceTable, FilterBar};
use crate::byte_map::page::TapeView;
use crate::byte_map::state::{TapeMark, row_at};
use crate::compare::message::{CompareRequest, ReportFormat};
use crate::compare::model::ComparisonState;
use crate::open::message::OpenedCheckpoint;
use crate::page::bars::{back, tabs};
use crate::page::error::error_body;
use crate::page::grade::{grade_mark, grade_title};
use crate::page::hooks::ByAddress;
use crate::page::marks::{cap, classes, logo, severity, when};
use crate::page::model::actor::Actor;
use crate::page::model::{Sheet, Tab};
use crate::page::panes::{Pane, PaneEdge};
use crate::protocol::ToWorker;
use crate::protocol::error::ErrorText;
use crate::state::fmt;
use crate::state::task::Task;
use crate::state::work::OpenWork;

/// Properties of the comparison screen.
#[derive(Properties, PartialEq)]
pub struct CompareProps {
    /// The first checkpoint; `None` while it is being opened.
    pub work: Option<OpenWork>,
    /// The grade of the first checkpoint, by all that was read of it.
    pub grade: Option<FileGrade>,
    /// The name of the first checkpoint, for the back button.
    pub title: AttrValue,
    /// The names of both sides.
    pub names: (AttrValue, AttrValue),
    pub compare: Rc<ComparisonState>,
    /// The pane that a small screen shows.
    pub tab: Tab,
    /// Swaps the sides; `None` if the first checkpoint can't be opened as the second.
    pub onswap: Option<Callback<()>>,
    /// The note on where bytes go.
    pub privacy: Html,
}

/// The comparison screen.
#[component]
pub fn CompareScreen(props: &CompareProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let compare = &props.compare;
    let view = if props.tab == Tab::Tensor { "v-insp" } else { "v-keys" };
    let marks =
        use_memo((compare.pairs.clone().map(ByAddress), props.work.clone()), |(pairs, work)| {
            Rc::new(match (pairs, work) {
                (Some(pairs), Some(work)) => pairs.0.marks(&work.starts),
                _ => Vec::new(),
            })
        });
    html! {
        <main class="app ws cmp" id="compare">
            { top(&actor, props) }
            { summary(&actor, compare) }
            <div class="strip">
                if let Some(work) = props.work.as_ref().filter(|work| work.sums.bytes > 0 && compare.picked.is_none() && compare.pairs.is_some()) {
                    { tape(&actor, work, &marks) }
                }
                if compare.matching { <Matching options={compare.options.clone()} rename={compare.rename.clone()} command={compare.command.clone()} /> }
                else if compare.different_keys {
                    <div class="parted" role="note">{ suggestion(&actor, compare.rename.as_ref()) }</div>
                }
                { renames(&actor, compare) }
                { errors(compare) }
            </div>
            { tabs(&actor, props.tab, &[(Tab::Keys, "Keys"), (Tab::Tensor, "Details")]) }
            <div class={classes(&["cols", view])}>
                <section class="mid" aria-label="Differences">
                    if let Some(keys) = compare.listed {
                        <div class="failed"><h3 class="failed">{ format!("B is not a checkpoint but a list of expected keys: {}.", fmt::plural(keys, "key")) }</h3>
                            <p class="mid-ink">{ "There are no values to compare. The details show whether A would load into it." }</p></div>
                    } else if let Some(error) = &compare.error {
                        { failed(&actor, error, compare) }
                    } else {
                        <FilterBar compare={compare.clone()} />
                        <DifferenceTable compare={compare.clone()} />
                    }
                </section>
                <Detail compare={compare.clone()} />
                <PaneEdge pane={Pane::Inspector} />
            </div>
            { status(&actor, compare, props.privacy.clone()) }
        </main>
    }
}

/// Renders the bytes of the first checkpoint, with marks where the second differs.
fn tape(actor: &Actor, work: &OpenWork, marks: &Rc<Vec<TapeMark>>) -> Html {
    let (rows, starts) = (work.rows.clone(), work.starts.clone());
    let onpick = actor.on(move |actor, byte: u64| {
        if let Some(row) = row_at(&rows, &starts, byte) {
            actor.compare(move |compare| compare.select_row(row));
        }
    });
    let (rows, starts) = (work.rows.clone(), work.starts.clone());
    let namer = Callback::from(move |byte: u64| {
        Some(visible(&rows[row_at(&rows, &starts, byte)? as usize].key))
    });
    html! {
        <div class="tape" id="differs"><TapeView parts={work.parts.clone()} layers={work.layers.clone()} missing={work.missing.clone()}
            marks={marks.clone()} namer={Some(namer)} onpick={Some(onpick)} /></div>
    }
}

fn top(actor: &Actor, props: &CompareProps) -> Html {
    let compare = &props.compare;
    let leave = actor.on(move |actor, _: MouseEvent| super::leave(actor));
    let home = actor.on(move |actor, _: MouseEvent| actor.go_home());
    let swap = props.onswap.as_ref().map(|onswap| onswap.reform(|_: MouseEvent| ()));
    let matching = actor.on(move |actor, _: MouseEvent| {
        actor.compare(|compare| compare.matching = !compare.matching);
    });
    let complete = matches!(compare.reading, Task::Done(_)) && compare.error.is_none();
    let save = |format: ReportFormat| {
        let id = match format {
            ReportFormat::Json => "save-report",
            ReportFormat::Markdown => "save-markdown",
            ReportFormat::Html => "save-html",
        };
        let onclick = actor.on(move |actor, _: MouseEvent| {
            actor.request(&ToWorker::Compare(CompareRequest::Report(format)));
        });
        html! { <button class="btn" {id} {onclick} disabled={!complete}>{ format.name() }</button> }
    };
    let options = &compare.options;
    let renames = !(options.strip_prefix.is_empty()
        && options.rename.is_empty()
        && options.prefix.is_empty());
    html! {
        <header class="top">
            <button class="home" onclick={home} aria-label="Statelens: close and go to the first screen" title="Close and go to the first screen">{ logo() }</button>
            <span class="vr"></span>
            { back(if props.title.is_empty() { "Back" } else { &props.title }, "Back to the first checkpoint (Esc)", leave) }
            <h1 class="vh">{ "Comparison" }</h1>
            <div class="ab">
                if compare.picked.is_some() {
                    { side(("A", &props.names.0), None, None, true) }
                    { side(("B", &props.names.1), None, None, true) }
                } else {
                    { side(("A", &props.names.0), props.work.as_ref().map(|work| &*work.opened), props.grade, false) }
                    { side(("B", &props.names.1), compare.opened.as_deref(), None, compare.listed.is_some()) }
                }
            </div>
            <span class="acts">
                <button class="btn only-l" disabled={compare.opened.is_none() || swap.is_none()} onclick={swap}>{ "Swap A and B " }{ cap("X") }</button>
                <button class="btn" onclick={matching} aria-expanded={compare.matching.to_string()}>{ "Matching " }
                    <span class="dim only-l">{ if renames { "by renamed keys" } else { "by key" } }</span>{ cap("M") }</button>
                <span class="savereport" role="group" aria-label="Save report"
                    title={if complete { "Saves the report" } else { "Available when the comparison is complete" }}>
                    <span class="lab only-l">{ "report" }</span>{ for ReportFormat::ALL.into_iter().map(save) }</span>
            </span>
        </header>
    }
}

/// Renders the name of a side; `plain` if it is not a checkpoint.
fn side(
    (letter, name): (&'static str, &str),
    opened: Option<&OpenedCheckpoint>,
    grade: Option<FileGrade>,
    plain: bool,
) -> Html {
    let grade = grade.or_else(|| Some(FileGrade::of_findings(&opened?.findings).0));
    let badge = opened.map(OpenedCheckpoint::badge);
    html! {
        <>
            <span class="let">{ letter }</span>
            <span class="of">
                <span class="name" data-side={letter} title={visible(name)}>{ visible(name) }</span>
                if let Some(badge) = badge { <span class="badge only-l">{ badge }</span> }
                if let Some(opened) = opened { <span class="m dim">{ fmt::bytes(opened.size) }</span> }
                if let Some(grade) = grade {
                    <span class="graded" data-grade={grade.word()} title={grade_title(grade)}>{ grade_mark(Some(grade)) }<span class={when(grade.is_good(), "only-l")}>{ grade.word() }</span></span>
                }
                if opened.is_none() && !plain { <span class="dim">{ "opening\u{2026}" }</span> }
            </span>
        </>
    }
}

/// Renders the error: the second checkpoint can't be opened, or the options are invalid.
fn failed(actor: &Actor, error: &Rc<ErrorText>, compare: &ComparisonState) -> Html {
    let choose = actor.on(move |actor, _: MouseEvent| actor.choose_compared(false));
    let options =
        actor.on(move |actor, _: MouseEvent| actor.compare(|compare| compare.matching = true));
    html! {
        <div class="failed" role="alert">
            { error_body(error, "failed", true) }
            <p class="do">
                if compare.opened.is_none() { <button class="btn" onclick={choose}>{ "Choose another file" }</button> }
                else if !compare.matching { <button class="btn" onclick={options}>{ "Change the matching" }</button> }
            </p>
        </div>
    }
}

fn status(actor: &Actor, compare: &ComparisonState, privacy: Html) -> Html {
    let show = actor.on(move |actor, _: MouseEvent| actor.show(Some(Sheet::Keys)));
    let unread = compare.pairs.as_ref().map_or(0, |pairs| {
        let found = pairs.found.iter();
        found.filter(|one| matches!(one.kind, DifferenceKind::Unreadable { .. })).count() as u64
    });
    html! {
        <footer class="status">
            if unread > 0 { <span>{ severity(Grade::Warning) }<b>{ fmt::plural(unread, "tensor") }</b>{ "can\u{2019}t be read" }</span> }
            if !compare.command.is_empty() { <span class="m dim cmdline opt" title={compare.command.clone()}>{ &compare.command }</span> }
            <span class="grow"></span>
            { privacy }
            <button class="textrow opt dim" onclick={show}>{ "shortcuts " }{ cap("?") }</button>
        </footer>
    }
}
