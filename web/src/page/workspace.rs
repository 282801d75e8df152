//! The workspace: facts, tape, tree, table, inspector, status.

use std::cmp::Reverse;
use std::rc::Rc;

use gloo_timers::callback::Timeout;
use statelens_checkpoint::{Grade, visible};
use statelens_describe::FileGrade;
use yew::prelude::*;

use crate::byte_map::page::TapeView;
use crate::byte_map::state::{neighbour_row, row_at};
use crate::checkpoint_list::page::RailPane;
use crate::checkpoint_list::state::Rail;
use crate::filter::page::terms::{Example, examples};
use crate::filter::page::{FilterMenu, suggestion, term_id, underlined};
use crate::inspector::message::{FormattedValues, RowDetails};
use crate::inspector::page::Inspector;
use crate::model_description::message::ModelDescription;
use crate::open::message::{FetchStats, OpenedCheckpoint};
use crate::open::page::menu::open_menu;
use crate::page::bars::{back, menu, tabs};
use crate::page::drop::DroppedFile;
use crate::page::fetch_limit;
use crate::page::focus::enter_table;
use crate::page::grade::{grade_mark, grade_title};
use crate::page::hooks::ByAddress;
use crate::page::kept_outputs::kept_outputs;
use crate::page::marks::{
    FOLD, cap, chip, chosen, classes, logo, prose, severity, severity_count, typed, when,
};
use crate::page::model::actor::Actor;
use crate::page::model::{Sheet, Tab};
use crate::page::panes::{Pane, PaneEdge};
use crate::pieces::page::map_line;
use crate::read_as::page::ReadAsChoice;
use crate::state::fmt;
use crate::state::task::Task;
use crate::state::work::OpenWork;
use crate::table::page::TablePane;
use crate::table::state::Column;
use crate::text::title;
use crate::tree::page::TreePane;
use crate::treemap::page::TreemapPane;
use crate::treemap::state::TreemapView;
use crate::values::message::ScanReport;
use crate::values::model::ValuesPanel;
use crate::verify::message::VerifyReport;
use crate::{multi_select, values, verify};

#[derive(Properties, PartialEq)]
pub struct WorkspaceProps {
    /// The open checkpoint.
    pub work: OpenWork,
    /// The pane that a small screen shows.
    pub tab: Tab,
    /// True while the tree is shown over the table, on screens of middle width.
    pub tree_shown: bool,
    /// The worker's description of the model.
    pub description: Option<Rc<ModelDescription>>,
    /// The treemap that is shown instead of the table, if any.
    pub treemap: Option<TreemapView>,
    /// Details of the selected row.
    pub inspected: Option<Rc<RowDetails>>,
    /// Values of the selected row.
    pub values: Option<Rc<FormattedValues>>,
    /// Progress of the running conversion, in percent.
    pub running: Option<u32>,
    /// Bytes and requests fetched so far, if the checkpoint is remote.
    pub fetched: Option<FetchStats>,
    /// Maximum bytes that one action may fetch from it.
    pub cap: u64,
    /// The note on where bytes go.
    pub privacy: Html,
    /// State of the verification.
    pub verifying: Task<VerifyReport>,
    /// Whether the checkpoint can be used, by all that was read of it.
    pub grade: Option<FileGrade>,
    /// The bytes of outputs in private storage.
    pub kept: u64,
    /// The state of reading values.
    pub values_panel: ValuesPanel,
    /// Lets the user choose a second checkpoint.
    pub oncompare: Callback<()>,
    /// The name in the header.
    pub title: AttrValue,
    /// The checkpoints of the drop, if there are several.
    pub rail: Option<Rc<Rail>>,
    /// The files of the drop.
    pub files: Rc<Vec<DroppedFile>>,
    /// Whether the left pane shows the files rather than the tree.
    pub files_shown: bool,
    /// The name of the run folder that the checkpoint was opened from.
    pub run: Option<AttrValue>,
    /// The dtypes of arrays that are stored without one.
    pub read_as: ReadAsChoice,
    /// The button that shows the check of the folder.
    pub check: Html,
}

#[component]
pub fn Workspace(props: &WorkspaceProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let work = &props.work;
    let lens = work
        .row()
        .or_else(|| work.fold().and_then(|fold| fold.patterns.first()?.rows.first().copied()));
    let lens = lens.map(|row| work.starts[row as usize]);
    let onpick = {
        let (rows, starts) = (work.rows.clone(), work.starts.clone());
        actor.on(move |actor, byte: u64| {
            if let Some(row) = row_at(&rows, &starts, byte) {
                actor.work(move |work| work.select_row(row));
            }
        })
    };
    let onstep = {
        let (rows, starts) = (work.rows.clone(), work.starts.clone());
        let from = lens;
        actor.on(move |actor, by: i64| {
            if let Some(row) = neighbour_row(&rows, &starts, from, by) {
                actor.work(move |work| work.select_row(row));
            }
        })
    };
    let namer = {
        let (rows, starts) = (work.rows.clone(), work.starts.clone());
        Some(Callback::from(move |byte: u64| {
            Some(visible(&rows[row_at(&rows, &starts, byte)? as usize].key))
        }))
    };
    let onbrush = Some(actor.on(move |actor, range: (u64, u64)| {
        actor.work(move |work| work.set_range(Some(range)));
    }));
    // Unless the user chose, joined ranks have colours, and files do not.
    let by_place = use_state(|| None::<bool>);
    let places = &work.places;
    let is_by_place = by_place.unwrap_or(!places.line.is_empty()) && !places.names.is_empty();
    let oncolor = Callback::from(move |on: bool| by_place.set(Some(on)));
    let at = work.row().map(|row| AttrValue::from(work.rows[row as usize].key.clone()));
    let view = match props.tab {
        Tab::Tree => "v-tree",
        Tab::Keys => "v-keys",
        Tab::Tensor => "v-insp",
    };
    html! {
        <main class="app ws" id="work" data-name={visible(&props.title)}>
            { top(&actor, props) }
            if work.sums.bytes > 0 {
                <div class="tape">{ map_line(places, is_by_place, oncolor) }<TapeView places={is_by_place.then(|| places.clone())} parts={work.parts.clone()} layers={work.layers.clone()} missing={work.missing.clone()} marks={work.marks.clone()} range={work.range} {namer} {onbrush} {lens} onpick={Some(onpick)} onstep={Some(onstep)} {at} /></div>
            } else {
                <div class="tape none"></div>
            }
            { tabs(&actor, props.tab, &[(Tab::Tree, if props.rail.is_some() { "Files" } else { "Tree" }), (Tab::Keys, "Keys"), (Tab::Tensor, "Tensor")]) }
            <div class={classes(&["cols", view, when(props.tree_shown, "with-tree")])} style={tree_width(work)}>
                <TreePane work={work.clone()} description={props.description.clone()} files={rail(props)} />
                <section class="mid" aria-label="Keys">
                    if work.opened_grave { { notice(&actor, work) } }
                    if work.opened.summary {
                        <p class="notice summary-only" id="summary-only">{ "This is a summary from a link: keys, dtypes and shapes, no values. The sender has the file with its weights." }</p>
                    }
                    if let Some(view) = &props.treemap {
                        <TreemapPane work={work.clone()} view={view.clone()} description={props.description.clone()} />
                    } else {
                        <FilterBar work={work.clone()} />
                        <TablePane work={work.clone()} />
                        { multi_select::page::strip(&actor, work, &props.oncompare) }
                    }
                    // Findings that arrive after opening are shown below, so that they don't move
                    // the rows.
                    if !work.opened_grave { { notice(&actor, work) } }
                </section>
                <Inspector work={work.clone()} title={props.title.clone()} description={props.description.clone()} inspected={props.inspected.clone()} values={props.values.clone()} values_panel={props.values_panel.clone()} read_as={props.read_as.clone()} />
                <PaneEdge pane={Pane::Tree} />
                <PaneEdge pane={Pane::Inspector} />
            </div>
            { status(&actor, work, props) }
        </main>
    }
}

/// Returns the default CSS width of the tree: it shows its names in full if the keys
/// of the table still have their room.
fn tree_width(work: &OpenWork) -> String {
    let table = work.widths.table(&work.key_widths);
    format!(
        "--tree-fit:clamp(256px, 100vw - var(--insp, 364px) - {table:.0}px, {:.0}px * var(--scale, 1))",
        work.tree_width
    )
}

/// Renders the list of the checkpoints of the drop.
fn rail(props: &WorkspaceProps) -> Option<(Html, bool)> {
    let rail = props.rail.clone()?;
    let list =
        html! { <RailPane {rail} files={props.files.clone()} at={props.work.opened.main} /> };
    Some((list, props.files_shown))
}

fn top(actor: &Actor, props: &WorkspaceProps) -> Html {
    let WorkspaceProps { work, values_panel, oncompare, .. } = props;
    let opened = &work.opened;
    let on = |act: fn(&Actor)| actor.on(move |actor, _: MouseEvent| act(actor));
    html! {
        // With nothing selected, the inspector has the same numbers in full.
        <header class={classes(&["top", when(work.selection.is_none(), "whole")])}>
            <button class="home" onclick={on(Actor::go_home)} aria-label="Statelens: close and go to the first screen"
                title="Close and go to the first screen">{ logo() }</button>
            <span class="vr"></span>
            if let Some(run) = &props.run { { back(run, "Back to the run (Esc)", on(Actor::leave)) } }
            <h1 class="name" title={visible(&opened.name)}>{ visible(&props.title) }</h1>
            if let Some((at, count)) = place(props) {
                <button class="btn quiet small rail-button" id="show-rail" title="Dropped files ([ and ])" onclick={on(Actor::show_rail)}>
                    { format!("{at} of {count}") }<span class="caret" aria-hidden="true"></span></button>
            }
            if opened.shards > 0 { <span class="tag only-l" id="shards">{ format!("{} shards", fmt::exact(opened.shards)) }</span> }
            <span class="badge only-l">{ opened.badge() }</span>
            <span class="facts">
                <span class="only-s">{ opened.format.text() }</span>
                if opened.shards > 0 { <span class="only-s">{ format!("{} shards", fmt::exact(opened.shards)) }</span> }
                if opened.model_params > 0 {
                    <span title={format!("In the model; {} in all tensors", fmt::plural(work.sums.params, "element"))}><b>{ fmt::count(opened.model_params) }</b>{ " params" }</span>
                } else if work.sums.params > 0 {
                    <span title="In all tensors; no parameters were recognised"><b>{ fmt::count(work.sums.params) }</b>{ " elements" }</span>
                }
                <span><b>{ fmt::bytes(if work.sums.bytes > 0 { work.sums.bytes } else { opened.size }) }</b></span>
                if let Some(grade) = props.grade { <span class="printed">{ grade_mark(props.grade) }{ " " }<b>{ grade.word() }</b></span> }
                <span class="printed"><b>{ fmt::exact(work.sums.tensors) }</b>{ " tensors" }</span>
            </span>
            <span class="acts">
                <span class="only-l">{ values::page::scan_button(actor, work, values_panel, fetch_cap(props)) }</span>
                <span class="only-l">{ open_menu() }</span>
                <button class="btn only-l" onclick={on(|actor| actor.show(Some(Sheet::Share)))}>{ "Share " }{ cap("S") }</button>
                if !opened.summary {
                    <button class="btn" id="compare-with" onclick={oncompare.reform(|_| ())}>{ "Compare " }{ cap("D") }</button>
                    <button class="btn pri" onclick={on(|actor| actor.update(|model| model.start_convert()))}>
                        { "Convert " }{ cap("C") }
                    </button>
                }
            </span>
        </header>
    }
}

/// Returns the maximum bytes that one action may fetch; `None` for local files.
fn fetch_cap(props: &WorkspaceProps) -> Option<u64> {
    props.fetched.as_ref().map(|_| props.cap)
}

/// Returns the 1-based position of the open checkpoint among those of the drop, and their number.
fn place(props: &WorkspaceProps) -> Option<(usize, usize)> {
    let rail = props.rail.as_ref()?;
    Some((rail.find(props.work.opened.main)? + 1, rail.entries.len()))
}

/// Renders the most severe finding. Notes are only counted in the status bar.
fn notice(actor: &Actor, work: &OpenWork) -> Html {
    let found = work.opened.findings.iter().map(|finding| (finding.grade, title(&finding.title)));
    let noticed = work.noticed.iter().flat_map(|noticed| noticed.iter());
    // Findings about values are the newest.
    let all: Vec<(Grade, String)> =
        noticed.map(|noticed| (noticed.grade, title(&noticed.title))).chain(found).collect();
    let grave = all.iter().filter(|(grade, _)| *grade != Grade::Note);
    let Some((grade, first)) = grave.min_by_key(|(grade, _)| Reverse(*grade)) else {
        return html! {};
    };

    let onclick = actor.on(move |actor, _: MouseEvent| actor.show(Some(Sheet::Findings)));
    let class = if *grade > Grade::Warning { "danger" } else { "warn" };
    let rest = all.len() - 1;
    html! {
        <button class={classes(&["notice", class])} {onclick}>
            { severity(*grade) }
            <span class="cut">{ prose(first) }</span>
            <span class="more">
                { if rest == 0 { "Show ".to_owned() } else { format!("and {rest} more ") } }{ cap("F") }
            </span>
        </button>
    }
}

/// Properties of the filter box and its chips.
#[derive(Properties, PartialEq)]
struct FilterProps {
    work: OpenWork,
}

#[component]
fn FilterBar(props: &FilterProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let work = &props.work;
    let menu_shown = use_state(|| false);
    let menu_at = use_state(|| None::<usize>);
    let terms = {
        let work = work.clone();
        let shown = *menu_shown;
        use_memo((shown, ByAddress(work.rows.clone()), work.view.weights.any()), move |_| {
            match shown {
                true => Rc::new(examples(&work)),
                false => Rc::default(),
            }
        })
    };
    let oninput = {
        let menu = menu_shown.clone();
        actor.on(move |actor, event: InputEvent| {
            let Some(text) = typed(&event) else { return };
            actor.work(move |work| work.set_filter(&text));
            menu.set(false);
        })
    };
    let onchoose = {
        let menu = menu_shown.clone();
        Callback::from(move |()| menu.set(false))
    };
    // An empty filter shows the menu of terms.
    let onfocus = {
        let (menu, at) = (menu_shown.clone(), menu_at.clone());
        let empty = work.filter.is_empty();
        Callback::from(move |_: FocusEvent| {
            menu.set(empty);
            at.set(None);
        })
    };
    let onleave = {
        let menu = menu_shown.clone();
        Callback::from(move |_: FocusEvent| menu.set(false))
    };
    let onkeydown = {
        let (menu, at, terms) = (menu_shown.clone(), menu_at.clone(), terms.clone());
        actor.on(move |actor, event: KeyboardEvent| {
            let usable = |at: &usize| terms.get(*at).is_some_and(Example::is_usable);
            let next = match event.key().as_str() {
                "Escape" => return menu.set(false),
                "ArrowDown" if *menu => {
                    (at.map_or(0, |at| at + 1)..terms.len()).find(usable).or(*at)
                }
                "ArrowUp" if *menu => at.and_then(|at| (0..at).rfind(usable)),
                "Enter" if at.is_some() && *menu => {
                    let term = at.and_then(|at| terms.get(at)).map(|one| one.term.clone());
                    event.prevent_default();
                    menu.set(false);
                    return actor.work(move |work| work.set_filter(&term.unwrap_or_default()));
                }
                "Enter" | "ArrowDown" => {
                    event.prevent_default();
                    return enter_table(actor);
                }
                _ => return,
            };
            event.prevent_default();
            at.set(next);
        })
    };
    let choose = |family: &'static str| {
        actor.on(move |actor, event: Event| {
            let Some(value) = chosen(&event) else { return };
            let word = if value.is_empty() { String::new() } else { format!("{family}{value}") };
            actor.work(move |work| work.toggle_term(&word, family));
        })
    };
    let kind = |term: &'static str, name: &'static str, count: u64| {
        let toggle = actor.on(move |actor, _: MouseEvent| {
            actor.work(move |work| work.toggle_term(term, "kind:"));
        });
        let on = work.filter.split_whitespace().any(|word| word == term);
        chip(on, None, toggle, html! { <>{ name }<span class="m">{ fmt::exact(count) }</span></> })
    };
    {
        // A long search runs in slices, and so does arranging many rows, so that the page can handle
        // input between them.
        let actor = actor.clone();
        use_effect_with((work.searching(), work.arranging()), move |&(searching, arranging)| {
            let runs = searching.is_some() || arranging.is_some();
            let next = runs.then(|| Timeout::new(0, move || actor.work(OpenWork::continue_slices)));
            move || drop(next)
        });
    }
    let tree = actor
        .on(move |actor, _: MouseEvent| actor.update(|model| model.tree_shown = !model.tree_shown));
    let fold = actor.on(move |actor, _: MouseEvent| actor.work(OpenWork::toggle_folding));
    let unlimit =
        actor.on(move |actor, _: MouseEvent| actor.work(move |work| work.set_range(None)));
    let by_member = actor.on(move |actor, _: MouseEvent| actor.work(OpenWork::toggle_by_member));
    let dtypes: Vec<String> = work.dtypes.iter().map(|(word, _)| word.clone()).collect();
    let states: Vec<String> = work
        .states
        .iter()
        .map(|(name, _)| name.clone())
        .filter(|name| !name.contains(char::is_whitespace))
        .collect();
    html! {
        <div class="pane-h filterbar">
            <button class="btn only-m" onclick={tree}>{ "Tree" }</button>
            <label class="inp grow">
                <svg width="12" height="12" viewBox="0 0 12 12" fill="none" stroke="var(--ink-3)" stroke-width="1.3" aria-hidden="true">
                    <circle cx="5" cy="5" r="4" /><path d="m8 8 3.5 3.5" />
                </svg>
                { underlined(&work.filter) }
                <input id="filter" type="text" value={work.filter.clone()} {oninput} {onkeydown} {onfocus} onblur={onleave} role="combobox" aria-autocomplete="list" aria-haspopup="listbox"
                    aria-expanded={menu_shown.to_string()} aria-controls={menu_shown.then_some("terms")} aria-activedescendant={menu_at.filter(|_| *menu_shown).map(term_id)} placeholder="filter, as in: weight shape:[4096,*]"
                    aria-label="Filter keys" autocomplete="off" autocapitalize="off" spellcheck="false"
                    aria-invalid={work.filter_error.is_some().to_string()} />
                if work.filter_error.is_some() {
                    <span class="hits w-warn">{ "not understood" }</span>
                } else if let Some(suggestion) = suggestion(&actor, &work.filter) {
                    { suggestion }
                } else if let Some(tested) = work.searching() {
                    <span class="hits dim">{ format!("{} % searched", tested * 100 / work.rows.len().max(1)) }</span>
                } else if work.arranging().is_some() {
                    <span class="hits dim">{ "arranging\u{2026}" }</span>
                } else if !work.filter.is_empty() {
                    <span class="hits" role="status" data-count={work.table.leaves.to_string()}>{ fmt::plural(work.table.leaves as u64, if work.is_loosened() { "similar key" } else { "key" }) }</span>
                } else {
                    <kbd class="car">{ "/" }</kbd>
                }
            </label>
            if let Some(error) = &work.filter_error {
                <span class="filter-error" role="status">{ severity(Grade::Warning) }<span>{ error }</span></span>
            } else if *menu_shown { <FilterMenu examples={(*terms).clone()} at={*menu_at} {onchoose} /> }
            <span class="chips" role="group" aria-label="Filters">
                if let Some((from, to)) = work.range {
                    { chip(true, Some("Show the whole file"), unlimit, html! { <>{ "bytes " }<span class="m">{ format!("{}\u{2013}{}", fmt::bytes(from), fmt::bytes(to)) }</span>{ " \u{d7}" }</> }) }
                }
                { chip(work.view.fold, FOLD, fold, html! { "fold layers" }) }
                <span class="chips">
                if dtypes.len() > 1 { { menu("dtype", &dtypes, current(&work.filter, "dtype:"), choose("dtype:")) } }
                if states.len() > 1 { { menu("state", &states, current(&work.filter, "state:"), choose("state:")) } }
                </span>
                { sorting(&actor, work) }
                if work.view.fold && matches!(work.view.sort, Some((Column::Bytes | Column::Params, _))) && !work.table.folds.is_empty() {
                    { chip(work.view.by_member, Some("Sort layers by the size of one, not by their sum"), by_member, html! { "by member" }) }
                }
                if work.sums.tensors > 0 && work.sums.values > 0 {
                    { kind("kind:tensor", "tensors ", work.sums.tensors) }
                    { kind("kind:value", "values ", work.sums.values) }
                }
                { values::page::picker(&actor, work) }
            </span>
        </div>
    }
}

/// Renders the menu for sorting, for small screens whose table has no header to click on.
fn sorting(actor: &Actor, work: &OpenWork) -> Html {
    let columns: Vec<(Column, &'static str)> = values::page::columns(work)
        .into_iter()
        .filter_map(|(column, name, _)| Some((column?, name)))
        .collect();
    let choices: Vec<String> = columns.iter().map(|(_, name)| (*name).to_owned()).collect();
    let by = work.view.sort.map(|(column, _)| column);
    let of = |column| columns.iter().find(|(one, _)| Some(*one) == column);
    let current = of(by).map(|(_, name)| (*name).to_owned()).unwrap_or_default();

    let onchange = actor.on(move |actor, event: Event| {
        let value = chosen(&event).unwrap_or_default();
        let column = columns.iter().find(|(_, name)| *name == value).map(|(column, _)| *column);
        actor.work(move |work| match column {
            Some(column) => work.sort_by(column),
            // Sorting by the same column cycles through both directions and then ends.
            None => {
                for _ in 0..2 {
                    if let Some((column, _)) = work.view.sort {
                        work.sort_by(column);
                    }
                }
            }
        });
    });
    html! { <span class="only-s">{ menu("sort", &choices, current, onchange) }</span> }
}

fn current(filter: &str, family: &str) -> String {
    filter
        .split_whitespace()
        .find_map(|word| word.strip_prefix(family))
        .unwrap_or_default()
        .to_owned()
}

fn status(actor: &Actor, work: &OpenWork, props: &WorkspaceProps) -> Html {
    let show = |sheet: Sheet| actor.on(move |actor, _: MouseEvent| actor.show(Some(sheet)));
    let count = |grade: Grade| {
        let noticed = work.noticed.iter().flat_map(|noticed| noticed.iter());
        let noticed = noticed.filter(|noticed| noticed.grade == grade).count();
        let found = work.opened.findings.iter().filter(|finding| finding.grade == grade);
        (found.count() + noticed) as u64
    };
    let opened = &work.opened;
    let open = actor.on(move |actor, _: MouseEvent| actor.choose_files());
    html! {
        <footer class="status">
            if let Some(grade) = props.grade {
                <button class="textrow opt" id="grade" data-grade={grade.word()} title={grade_title(grade)} onclick={show(Sheet::Findings)}><span>{ grade_mark(props.grade) }<b>{ grade.word() }</b></span></button>
            }
            <button class="textrow" onclick={show(Sheet::Findings)} title="Findings (F)">
                { for Grade::ALL.into_iter().filter(|&grade| count(grade) > 0).map(|grade| html! {
                    <span>{ severity(grade) }
                        if grade == Grade::Note { { severity_count(grade, count(grade)) } }
                        else { <b>{ severity_count(grade, count(grade)) }</b> }</span>
                }) }
                if Grade::ALL.into_iter().all(|grade| count(grade) == 0) { <span>{ "no findings" }</span> }
            </button>
            if !opened.summary { { verify::page::status(actor, &props.verifying) } }
            { props.check.clone() }
            { values::page::status(actor, work, &props.values_panel, fetch_cap(props)) }
            if let Some(percent) = props.running {
                <button class="textrow" onclick={show(Sheet::Convert)}><span><b>{ format!("writing {percent} %") }</b></span></button>
            }
            { kept_outputs(actor, props.kept) }
            <button class="textrow only-s" onclick={open}>{ "Open" }</button>
            <button class="textrow only-s" onclick={show(Sheet::Share)}>{ "Share" }</button>
            <span class="opt dim" id="effort">{ effort(opened, &props.values_panel.scan) }</span>
            <span class="grow"></span>
            if let Some(fetched) = &props.fetched {
                { fetch_limit::fetched(actor, fetched, props.cap) }
            } else {
                { props.privacy.clone() }
            }
            <button class="textrow opt dim" onclick={show(Sheet::Keys)}>{ "shortcuts " }{ cap("?") }</button>
        </footer>
    }
}

/// Describes the time and the bytes that opening took, until all values are read.
fn effort(opened: &OpenedCheckpoint, scan: &Task<ScanReport>) -> String {
    if opened.summary {
        return format!("from a link \u{b7} the file has {}", fmt::bytes(opened.size));
    }
    let time = fmt::seconds(opened.millis);
    let read = opened.read.saturating_sub(opened.searched.1);
    let searched = match opened.searched {
        (0, _) => String::new(),
        (files, bytes) => {
            format!(" \u{b7} examined {} ({})", fmt::plural(files, "file"), fmt::bytes(bytes))
        }
    };
    if matches!(scan, Task::Done(scanned) if scanned.unread_bytes == 0) {
        return format!("opened in {time} \u{b7} all values are read{searched}");
    }
    // Blocks may be read twice, so the count is capped at the size of the file.
    if read >= opened.size {
        format!("opened in {time} \u{b7} read all of {}{searched}", fmt::bytes(opened.size))
    } else {
        format!(
            "opened in {time} \u{b7} read {} of {}{searched}",
            fmt::bytes(read),
            fmt::bytes(opened.size)
        )
    }
}
