//! The table of keys. It is virtual: only visible rows are in the document.

mod key_cell;

use std::collections::HashMap;
use std::ops::Range;

use statelens_checkpoint::visible;
use statelens_describe::fold::{Sums, join, values_text};
use web_sys::Element;
use yew::prelude::*;

use crate::filter::state::Filter;
use crate::multi_select::page::touch::{LongPress, is_tap};
use crate::page::edge::Edge;
use crate::page::hooks::{ByAddress, use_media, use_size, use_small, use_type_scale};
use crate::page::marks::{classes, contents_text, dtype, value_kind, when};
use crate::page::model::Tab;
use crate::page::model::actor::Actor;
use crate::page::viewport::{LineLayout, reveal, use_printing, use_steady_lines, use_viewport};
use crate::rows::{LeafKind, Row};
use crate::state::dtype::short;
use crate::state::fmt;
use crate::state::work::{OpenWork, Selection};
use crate::table::page::key_cell::key_cell;
use crate::table::state::fit::{BYTES, PARAMS, SHAPE, grid};
use crate::table::state::{Column, Fold, FoldPattern, TableLine, common_kind};
use crate::text::sentence;
use crate::values::page::cells;

#[derive(Properties, PartialEq)]
pub struct TableProps {
    /// The open checkpoint.
    pub work: OpenWork,
}

/// Maximum width of the table in pixels, as in its style sheet.
const MAX_WIDTH: f64 = 1400.0;

/// Maximum number of rows that are printed: about 500 pages.
const MAX_PRINTED: usize = 20_000;

/// Heights in pixels of a row: on wide screens, on small ones, and of a state on those.
const HEIGHTS: (f64, f64, f64) = (24.0, 48.0, 30.0);
/// The smallest and the largest width in pixels to which a column can be dragged.
const WIDTHS: (f64, f64) = (40.0, 600.0);
/// Width in pixels that a key can't use on small screens: the padding of the row, a gap and the
/// number of bytes.
const BESIDE_KEY: f64 = 32.0 + 12.0 + 62.0;

/// Returns the positions of the lines. Keys that are too long for their column, which has this width
/// in pixels, wrap.
fn lines(work: &OpenWork, small: bool, width: f64) -> LineLayout {
    let each = if small { HEIGHTS.1 } else { HEIGHTS.0 };
    if width <= 0.0 {
        // The width is not known yet.
        return LineLayout::Even { count: work.table.items.len(), each };
    }
    let height = |line: &TableLine| match line {
        TableLine::State(_) if small => HEIGHTS.2,
        line => key_cell(work, *line).height(width, each),
    };
    let heights: Vec<f64> = work.table.items.iter().map(height).collect();
    match heights.iter().all(|height| *height == each) {
        true => LineLayout::Even { count: heights.len(), each },
        false => LineLayout::of_heights(heights.into_iter()),
    }
}

/// The table of keys.
#[component]
pub fn TablePane(props: &TableProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let node = use_node_ref();
    let small = use_small();
    let (width, _) = use_size(&node);
    let known = use_mut_ref(|| 0.0);
    // A table that is hidden keeps its width.
    if width > 0.0 {
        known.replace(width.min(MAX_WIDTH));
    }
    let room = *known.borrow();
    let scale = use_type_scale();
    let narrow = use_media("(max-width: 1180px)");
    let own = use_state(HashMap::<&'static str, f64>::new);
    let mut work = props.work.clone();
    if room > 0.0 {
        // The columns are shown at once, and stored for the menus of columns.
        work.view.columns = work.fitting_columns(room / scale, narrow);
    }
    {
        let actor = actor.clone();
        let columns = (work.view.columns, props.work.view.columns);
        use_effect_with(columns, move |&(fitting, stored)| {
            if fitting != stored {
                actor.work(move |work| work.view.columns = fitting);
            }
        });
    }
    let work = &work;
    let mut widths = cells::widths(work, narrow, &own);
    if own.is_empty() {
        work.widths.widen(&mut widths, &work.key_widths, room / scale);
    }
    let (key_width, style) = grid(room, &widths, &work.key_widths, scale);
    let key_width = match (room > 0.0, small) {
        (true, true) => room - BESIDE_KEY,
        (true, false) => key_width,
        (false, _) => 0.0,
    };
    let shown = (ByAddress(work.table.clone()), work.view.sort);
    let lines =
        use_memo((shown.clone(), small, key_width, scale), |_| lines(work, small, key_width));
    let viewport = use_viewport(&node, &lines);
    let printing = use_printing();
    let printed = lines.count().min(MAX_PRINTED);
    // Rows are drawn once their heights are known.
    let visible = match (printing, room > 0.0) {
        (true, _) => 0..printed,
        (false, true) => viewport.first..viewport.end,
        (false, false) => 0..0,
    };
    use_steady_lines(&node, viewport.top, &lines, shown);
    let cursor = work.cursor();
    {
        let (node, lines) = (node.clone(), lines.clone());
        use_effect_with((work.scroll, room > 0.0), move |_| {
            if let (Some(at), Some(element)) = (cursor, node.cast::<Element>())
                && at < lines.count()
            {
                // Leaves room for the sticky state row at the top.
                reveal(&element, &lines, at, if small { 30.0 } else { 24.0 }, 1.0);
            }
        });
    }
    {
        // A new filter or sort order starts at the top.
        let node = node.clone();
        use_effect_with((work.filter.clone(), work.view.sort), move |_| {
            if let Some(element) = node.cast::<Element>() {
                element.set_scroll_top(0);
            }
        });
    }

    let state = sticky_state(work, lines.at(viewport.top));
    let resting = (*use_memo((), |()| LongPress::default())).clone();
    let [onpointerdown, onpointermove, ended] = resting.listeners(&actor);
    html! {
        <div class={classes(&["gridbox", "keytable", when(work.widths.value == 0.0, "valueless"), when(work.widths.kind == 0.0, "kindless"), when(work.view.weights.any(), "scanned"), when(!work.view.columns.has(SHAPE), "shapeless"), when(!work.view.columns.has(PARAMS), "paramless"), when(!work.view.columns.has(BYTES), "byteless"), when(work.view.columns.measures() == 0, "measureless")])} role="grid" aria-label="Flattened state" aria-multiselectable="true" tabindex="0" {style}
            aria-rowcount={work.table.items.len().to_string()} aria-activedescendant={cursor.map(|at| format!("line-{at}"))}>
            // The columns have their places once the width is known.
            if room > 0.0 { { head(&actor, work, &own, scale) } } else { <div class="head"></div> }
            <div class="scroller" role="rowgroup" ref={node} onscroll={viewport.onscroll} oncontextmenu={resting.menu()}
                {onpointerdown} {onpointermove} onpointerup={ended.clone()} onpointercancel={ended}>
                if let Some(at) = state.filter(|_| viewport.top > 0.0) {
                    <div class="flat stuck" aria-hidden="true">{ state_row(work, at, None) }</div>
                }
                <div class="flat" role="presentation" style={format!("height:{}px", lines.total())}>
                    { for visible.map(|at| {
                        line((&actor, &resting), work, at, cursor == Some(at), (lines.top(at)..lines.top(at + 1), key_width))
                    }) }
                </div>
                if printing && printed < lines.count() {
                    <p class="empty">{ format!("{} more rows are not printed. The command `statelens ls` lists all of them.", fmt::exact((lines.count() - printed) as u64)) }</p>
                }
                if work.table.items.is_empty() { { empty_table(&actor, work) } }
            </div>
        </div>
    }
}

/// Returns the state of the first visible line; `None` for a top-level leaf.
fn sticky_state(work: &OpenWork, line: usize) -> Option<usize> {
    let table = &work.table;
    let line = line.min(table.items.len().checked_sub(1)?);
    let state = (0..=line).rev().find_map(|at| match table.items[at] {
        TableLine::State(state) => Some(state),
        _ => None,
    })?;
    let key = match table.items[line] {
        TableLine::State(_) => return Some(state),
        TableLine::Row(id) | TableLine::Member(_, id) => &work.rows[id as usize].key,
        TableLine::Fold(fold) | TableLine::Pattern(fold, _) => &table.folds[fold].name,
    };
    let below = key
        .strip_prefix(table.states[state].0.as_str())
        .is_some_and(|rest| rest.starts_with(work.view.dot));
    below.then_some(state)
}

/// Renders the heads of the columns. A grip drags a column to its own width.
fn head(
    actor: &Actor,
    work: &OpenWork,
    own: &UseStateHandle<HashMap<&'static str, f64>>,
    scale: f64,
) -> Html {
    let only_dtype =
        work.rows.first().filter(|_| work.widths.kind == 0.0).map(|row| short(&row.dtype));
    html! {
        <div class="head" role="row">
            { for cells::columns(work).into_iter().map(|(column, name, class)| {
                let Some(column) = column else {
                    return html! { <div key={class} class={format!("c {class}")} role="columnheader">{ name }</div> };
                };
                let sorted = work.view.sort.filter(|(by, _)| *by == column);
                let onclick = actor.on(move |actor, _: MouseEvent| actor.work(move |work| work.sort_by(column)));
                let aria = sorted.map(|(_, down)| if down { "descending" } else { "ascending" });
                let onresize = {
                    let (own, class) = (own.clone(), class.split(' ').next().unwrap_or_default());
                    Callback::from(move |(_, width): (Element, Option<f64>)| {
                        let mut widths = (*own).clone();
                        match width {
                            Some(width) => widths.insert(class, width / scale),
                            None => widths.remove(class),
                        };
                        own.set(widths);
                    })
                };
                html! {
                    <div key={class} class={format!("c {class}")} role="columnheader" aria-label={name} aria-sort={aria}>
                        <button {onclick} title={format!("Sort by {name}")}>
                            { name }
                            if let Some(dtype) = only_dtype.as_ref().filter(|_| column == Column::Key) { <span class="dim" title="The dtype of all tensors">{ format!(" \u{b7} all {dtype}") }</span> }
                            if column == Column::Key && work.view.sort.is_none() { <span class="dim">{ " \u{b7} in file order" }</span> }
                            if let Some((_, down)) = sorted { <span class="up">{ if down { " \u{2193}" } else { " \u{2191}" } }</span> }
                        </button>
                        if column != Column::Key {
                            <Edge class="grip" label={format!("Width of {name}")} limits={WIDTHS} is_orphan=true {onresize} />
                        }
                    </div>
                }
            }) }
        </div>
    }
}

fn line(
    (actor, resting): (&Actor, &LongPress),
    work: &OpenWork,
    at: usize,
    selected: bool,
    (place, key_width): (Range<f64>, f64),
) -> Html {
    let table = &work.table;
    let item = table.items[at];
    let key = |button| key_cell(work, item).html(button, key_width);
    let (class, cells) = match item {
        TableLine::State(state) => return state_row(work, state, Some((at, place.start))),
        TableLine::Row(id) | TableLine::Member(_, id) => {
            let class = if matches!(item, TableLine::Member(..)) { "kid" } else { "" };
            (class, leaf(work, id, key(None), actor))
        }
        TableLine::Fold(fold) => {
            let fold = &table.folds[fold];
            let key = key(Some(fold_button(actor, fold)));
            ("fold", fold_cells(work, fold, key, actor))
        }
        TableLine::Pattern(fold, pattern) => {
            let class = if work.view.sort.is_some() { "" } else { "kid" };
            (
                class,
                pattern_cells(
                    work,
                    &table.folds[fold],
                    &table.folds[fold].patterns[pattern],
                    key(None),
                    actor,
                ),
            )
        }
    };
    let not_finite = work.view.weights.any().then(|| first_not_finite(work, item)).flatten();
    let select = {
        let resting = resting.clone();
        let some = work.picked.count() > 0;
        actor.on(move |actor, event: MouseEvent| {
            if resting.has_picked() {
                return;
            }
            if some && is_tap(&event) {
                return actor.work(move |work| work.toggle_pick(at));
            }
            let (add, extend) = (event.ctrl_key() || event.meta_key(), event.shift_key());
            if add || extend {
                event.prevent_default();
                return actor.work(move |work| work.pick(at, extend));
            }
            match not_finite {
                // Selects the leaf that the mark is about, and not the first layer of the fold.
                Some(row) => actor.work(move |work| work.select_row(row)),
                None => actor.work(move |work| work.select_line(at)),
            }
            if !matches!(item, TableLine::Fold(_)) {
                actor.tab(Tab::Tensor);
            }
        })
    };
    let toggle = match item {
        TableLine::Fold(fold) => {
            let name = table.folds[fold].name.clone();
            Some(actor.on(move |actor, _: MouseEvent| {
                let name = name.clone();
                actor.work(move |work| work.toggle_fold(&name));
            }))
        }
        _ => None,
    };
    let bad = not_finite.is_some();
    let last_kid = class == "kid"
        && !matches!(table.items.get(at + 1), Some(TableLine::Pattern(..) | TableLine::Member(..)));
    let picked = work.picked.has(table, item);
    let chosen = if work.picked.count() > 0 { picked } else { selected };
    html! {
        <div key={at} id={format!("line-{at}")} class={classes(&["row", class, when(last_kid, "last"), when(selected, "sel"), when(picked, "picked"), when(bad, "bad")])}
            role="row" data-key={visible(&key_of(work, item))} aria-rowindex={(at + 1).to_string()} aria-selected={chosen.to_string()}
            style={row_style(&place)} onclick={select} ondblclick={toggle}>
            { cells }
        </div>
    }
}

/// Returns the CSS of the place of a row. The style sheet has the height of most.
fn row_style(place: &Range<f64>) -> String {
    let height = place.end - place.start;
    let own = height != HEIGHTS.0 && height != HEIGHTS.1;
    let height = if own { format!(";height:{height}px") } else { String::new() };
    format!("top:{}px{height}", place.start)
}

/// Returns the key of a line, with a range for several layers; empty for a state.
fn key_of(work: &OpenWork, item: TableLine) -> String {
    let folds = &work.table.folds;
    match item {
        TableLine::State(_) => String::new(),
        TableLine::Row(id) | TableLine::Member(_, id) => work.rows[id as usize].key.clone(),
        TableLine::Fold(fold) => folds[fold].name.clone(),
        TableLine::Pattern(fold, pattern) => {
            join(&folds[fold].name, &folds[fold].patterns[pattern].label, work.view.dot)
        }
    }
}

/// Returns the first leaf of a line that has NaN or infinite values.
fn first_not_finite(work: &OpenWork, item: TableLine) -> Option<u32> {
    let is_outlier = |row: &u32| {
        work.view.weights.get(*row).is_some_and(|values| values.nan + values.infinite > 0)
    };
    work.table.all_rows_of(item).find(is_outlier)
}

fn state_row(work: &OpenWork, state: usize, place: Option<(usize, f64)>) -> Html {
    let Some((name, sums)) = work.table.states.get(state) else { return html! {} };
    let so_far = if work.view.so_far { " so far" } else { "" };
    let cells = html! {
        <>
            <div class="c ck" role="gridcell"><span class="key"><span class="z">{ visible(name) }</span><span class="x">{ contents_text(sums) }{ so_far }</span></span></div>
            <div class="c cd"></div><div class="c cs"></div>
            <div class="c cp num" role="gridcell">{ if sums.params > 0 { fmt::count(sums.params) } else { String::new() } }</div>
            <div class="c cb num" role="gridcell">{ if sums.bytes > 0 { fmt::bytes(sums.bytes) } else { String::new() } }</div>
            <div class="c cv"></div>
        </>
    };
    match place {
        Some((at, top)) => html! {
            <div key={at} id={format!("line-{at}")} class="row grp" role="row" aria-rowindex={(at + 1).to_string()} style={format!("top:{top}px")}>{ cells }</div>
        },
        None => html! { <div class="row grp">{ cells }</div> },
    }
}

fn kind_cell(row: &Row) -> Html {
    match row.kind {
        LeafKind::Tensor | LeafKind::Array if row.dtype.is_empty() => value_kind(row.kind_word()),
        LeafKind::Tensor | LeafKind::Array => dtype(&row.dtype),
        _ => value_kind(row.kind_word()),
    }
}

fn leaf(work: &OpenWork, id: u32, key: Html, actor: &Actor) -> Html {
    let row = &work.rows[id as usize];
    let has_shape = row.kind.has_shape();
    let scanned = work.view.weights.any() && has_shape && row.link.is_none();
    html! {
        <>
            <div class="c ck" role="gridcell" title={visible(&row.key)} aria-label={visible(&row.key)}>{ key }</div>
            <div class="c cd" role="gridcell">{ kind_cell(row) }</div>
            <div class="c cs m" role="gridcell">{ if has_shape { fmt::shape(&row.shape) } else { String::new() } }</div>
            <div class="c cp num" role="gridcell">{ if has_shape { fmt::count(row.params) } else { String::new() } }</div>
            { bytes_cell(has_shape.then_some(row.bytes), work.table.largest) }
            if scanned { { cells::cells(work, id, row) } }
            <div class={classes(&["c", "cv", "m", when(scanned, "measured")])} role="gridcell">
                if scanned { { small_values(work, std::iter::once(id), false) } }
                if row.is_missing() { { missing_mark(work, std::iter::once(id)) } }
                else if !row.value.is_empty() { <span class="v" title={row.value.clone()}>{ fmt::minus(&row.value) }</span> }
                if let Some(target) = &row.link { { link(work, target, actor) } }
            </div>
        </>
    }
}

/// Renders a tie as `= target`, with a link to the target leaf.
fn link(work: &OpenWork, target: &str, actor: &Actor) -> Html {
    let (_, tail) = fmt::key_parts(target);
    let tail = visible(tail);
    // A short target is shown in full.
    let text = if target.len() > 16 && tail.len() < target.len() {
        format!("\u{2026}{tail}")
    } else {
        visible(target)
    };
    let Some(row) = work.find(target) else {
        return html! { <span class="dim">{ format!("= {text}") }</span> };
    };

    let onclick = actor.on(move |actor, event: MouseEvent| {
        event.stop_propagation();
        actor.work(move |work| work.select_row(row));
    });
    html! { <span class="linkto"><span class="dim">{ "= " }</span><button class="textlink" tabindex="-1" title={visible(target)} {onclick}>{ text }</button></span> }
}

fn fold_button(actor: &Actor, fold: &Fold) -> Html {
    let toggle = {
        let name = fold.name.clone();
        actor.on(move |actor, event: MouseEvent| {
            event.stop_propagation();
            let name = name.clone();
            actor.work(move |work| {
                work.selection = Some(Selection::Fold(name.clone()));
                work.toggle_fold(&name);
            });
        })
    };
    html! {
        <button class="tw" tabindex="-1" aria-label={if fold.open { "Fold" } else { "Unfold" }} onclick={toggle}>
            { if fold.open { "\u{25be}" } else { "\u{25b8}" } }
        </button>
    }
}

fn fold_cells(work: &OpenWork, fold: &Fold, key: Html, actor: &Actor) -> Html {
    let rows: Vec<u32> =
        fold.patterns.iter().flat_map(|pattern| pattern.rows.iter().copied()).collect();
    let one_dtype = one(fold
        .patterns
        .iter()
        .map(|pattern| first(work, pattern).map(|row| (row.kind, &row.dtype))));
    let same = fold.patterns.iter().all(|pattern| pattern.one_shape);
    let scanned = work.view.weights.any() && fold.sums.tensors > 0;
    let alone = fold.patterns.first().filter(|_| fold.patterns.len() == 1);
    let values =
        if fold.patterns.len() == 1 { values_text(&work.rows, &rows) } else { String::new() };
    html! {
        <>
            <div class="c ck" role="gridcell" title={visible(&fold.name)} aria-expanded={fold.open.to_string()}>{ key }</div>
            <div class="c cd" role="gridcell">
                if one_dtype { if let Some(row) = fold.patterns.first().and_then(|pattern| first(work, pattern)) { { kind_cell(row) } } }
                else { <span class="dim m">{ "several" }</span> }
            </div>
            <div class="c cs m" role="gridcell">
                if fold.sums.tensors > 0 {
                    if fold.leaves && same { { shape_of(work, fold.patterns.first()) } }
                    else { <span class="mid-ink">{ if same { "same shapes" } else { "shapes differ" } }</span> }
                }
            </div>
            <div class="c cp num" role="gridcell">{ if fold.sums.tensors > 0 { fmt::count(fold.sums.params) } else { String::new() } }</div>
            { sum_cell(work, (fold.sums.tensors > 0).then_some(fold.sums), fold.sums.tensors) }
            if scanned { { cells::folded(work, fold, alone, &onselect(actor)) } }
            <div class={classes(&["c", "cv", "m", when(scanned, "measured")])} role="gridcell">
                if scanned { { small_values(work, rows.iter().copied(), alone.is_none()) } }
                { missing_mark(work, rows.iter().copied()) }
                <span class="v">{ values }</span></div>
        </>
    }
}

fn pattern_cells(
    work: &OpenWork,
    fold: &Fold,
    pattern: &FoldPattern,
    key: Html,
    actor: &Actor,
) -> Html {
    let Some(row) = first(work, pattern) else { return html! {} };
    let one_kind = common_kind(&work.rows, &pattern.rows).is_some();
    let scanned = work.view.weights.any() && row.kind.has_shape();
    html! {
        <>
            <div class="c ck" role="gridcell" title={visible(&join(&fold.name, &pattern.label, work.view.dot))} aria-label={pattern_name(work, fold, pattern)}>{ key }</div>
            <div class="c cd" role="gridcell">{ if one_kind { kind_cell(row) } else { html! {} } }</div>
            <div class="c cs m" role="gridcell">
                if row.kind.has_shape() {
                    if pattern.one_shape { { fmt::shape(&row.shape) } } else { <span class="mid-ink">{ "shapes differ" }</span> }
                }
            </div>
            <div class="c cp num" role="gridcell">{ if row.kind.has_shape() { fmt::count(pattern.sums.params) } else { String::new() } }</div>
            { sum_cell(work, row.kind.has_shape().then_some(pattern.sums), pattern.rows.len() as u64) }
            if scanned { { cells::folded(work, fold, Some(pattern), &onselect(actor)) } }
            <div class={classes(&["c", "cv", "m", when(scanned, "measured")])} role="gridcell">
                if scanned { { small_values(work, pattern.rows.iter().copied(), false) } }
                { missing_mark(work, pattern.rows.iter().copied()) }
                <span class="v">{ values_text(&work.rows, &pattern.rows) }</span></div>
        </>
    }
}

/// Returns the name of a pattern for screen readers, which begins with its visible text.
fn pattern_name(work: &OpenWork, fold: &Fold, pattern: &FoldPattern) -> String {
    let whole = join(&fold.name, &pattern.label, work.view.dot);
    match work.view.sort {
        None => visible(&pattern.label),
        Some(_) => format!("{} \u{d7}{}", visible(&whole), pattern.rows.len()),
    }
}

/// Returns a callback that selects a row.
fn onselect(actor: &Actor) -> Callback<u32> {
    actor.on(move |actor, row: u32| actor.work(move |work| work.select_row(row)))
}

/// Renders a mark for tensors whose data are missing, with their number if there are other rows.
fn missing_mark(work: &OpenWork, rows: impl Iterator<Item = u32>) -> Html {
    let (mut all, mut missing, mut why) = (0, 0, None);
    for row in rows.filter_map(|row| work.rows.get(row as usize)) {
        all += 1;
        if row.is_missing() {
            missing += 1;
            why.get_or_insert_with(|| row.value.clone());
        }
    }
    if missing == 0 {
        return html! {};
    }
    let text =
        if all == 1 { "missing".to_owned() } else { format!("{} missing", fmt::exact(missing)) };
    html! { <span class="gone w-warn" title={why}>{ text }</span> }
}

/// Renders the statistics of values in one line, for small screens.
fn small_values(work: &OpenWork, rows: impl Iterator<Item = u32>, several: bool) -> Html {
    let mut sum = work.view.weights.sum(rows);
    // A standard deviation over different tensors is not meaningful.
    sum.std = sum.std.filter(|_| !several);
    let class = if sum.nan + sum.infinite > 0 { "vsum w-warn" } else { "vsum" };
    html! { <span {class}>{ cells::values_line(&sum) }</span> }
}

fn first<'a>(work: &'a OpenWork, pattern: &FoldPattern) -> Option<&'a Row> {
    pattern.rows.first().map(|&id| &work.rows[id as usize])
}

fn shape_of(work: &OpenWork, pattern: Option<&FoldPattern>) -> String {
    pattern
        .and_then(|pattern| first(work, pattern))
        .map(|row| fmt::shape(&row.shape))
        .unwrap_or_default()
}

fn one<T: PartialEq>(mut items: impl Iterator<Item = T>) -> bool {
    items.next().is_none_or(|head| items.all(|item| item == head))
}

/// Renders a size, with a bar for its share of the largest. Bars below 1 % would be invisible and
/// are omitted.
fn bytes_cell(bytes: Option<u64>, largest: u64) -> Html {
    let Some(bytes) = bytes else { return html! { <div class="c cb num" role="gridcell"></div> } };
    let share = bytes as f64 / largest.max(1) as f64;
    html! {
        <div class="c cb num" role="gridcell">
            { fmt::bytes(bytes) }
            if share >= 0.01 { <span class="share" aria-hidden="true" style={format!("--w:{share:.3}")}></span> }
        </div>
    }
}

/// Renders the size of several tensors, marked as a sum if the table is sorted by it.
fn sum_cell(work: &OpenWork, sums: Option<Sums>, count: u64) -> Html {
    let sorted = matches!(work.view.sort, Some((Column::Bytes | Column::Params, _)));
    let Some(sums) = sums.filter(|_| sorted && count > 1) else {
        return bytes_cell(sums.map(|sums| sums.bytes), work.table.largest);
    };
    let (bytes, mark, title) = match work.view.by_member {
        true => (sums.bytes / count, "each ", format!("Each of {}", fmt::plural(count, "tensor"))),
        false => (sums.bytes, "\u{3a3} ", format!("The sum of {}", fmt::plural(count, "tensor"))),
    };
    html! { <div class="c cb num" role="gridcell" {title}><span class="dim">{ mark }</span>{ fmt::bytes(bytes) }</div> }
}

fn empty_table(actor: &Actor, work: &OpenWork) -> Html {
    if work.rows.is_empty() {
        return html! { <div role="row"><p class="empty" role="gridcell">{ "This state is empty: it holds no keys." }</p></div> };
    }

    let clear = actor.on(move |actor, _: MouseEvent| actor.work(|work| work.set_filter("")));
    let of_values = Filter::parse(&work.filter).is_ok_and(|filter| filter.is_of_values());
    let unread = of_values && !work.view.weights.any();
    html! {
        <div role="row"><p class="empty" role="gridcell">
            if let Some(error) = &work.filter_error { { sentence(error) }{ " " } }
            else { { format!("No key matches \u{2018}{}\u{2019}. ", work.filter) } }
            if unread { { "This filter needs values, which are not read yet. Scan them first. " } }
            if let Some(hint) = Filter::hint(&work.filter) { { hint }{ " " } }
            <button class="textlink" onclick={clear}>{ "Clear filter" }</button>
        </p></div>
    }
}
