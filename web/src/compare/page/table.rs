//! The table of differences. It is virtual: only visible rows are in the document.

use std::ops::Range;
use std::rc::Rc;

use statelens_checkpoint::{Grade, visible};
use statelens_compare::diff::DifferenceKind;
use yew::prelude::*;

use crate::compare::message::Difference;
use crate::compare::model::ComparisonState;
use crate::compare::state::fit::{CompareColumns, KeyText};
use crate::compare::state::{CompareLine, CompareOrder, MARKS, Mark, Pairs};
use crate::page::hooks::{ByAddress, use_media, use_size, use_small, use_type_scale};
use crate::page::marks::{self, FOLD, classes, dtype, lined, severity, value_kind, when};
use crate::page::model::Tab;
use crate::page::model::actor::Actor;
use crate::page::rows::Rows;
use crate::page::text_width::{character_width, line_height};
use crate::page::viewport::LineLayout;
use crate::rows::Row;
use crate::state::fmt;
use crate::values::state::number;

const COLUMNS: [(&str, &str, Option<CompareOrder>); 7] = [
    ("change", "ch1", Some(CompareOrder::Change)),
    ("key", "ck", Some(CompareOrder::File)),
    ("kind", "cd", None),
    ("shape", "cs", None),
    ("max |\u{394}|", "cp num", Some(CompareOrder::MaxAbs)),
    ("cosine", "cb num", Some(CompareOrder::Cosine)),
    ("relative change", "cv", Some(CompareOrder::Relative)),
];

#[derive(Properties, PartialEq)]
pub(super) struct TableProps {
    pub compare: Rc<ComparisonState>,
}

/// Renders a mark: its sign and its word.
pub(super) fn mark(mark: Mark) -> Html {
    let (class, sign) = match mark {
        Mark::Added => ("add", "+"),
        Mark::Removed => ("rem", "\u{2212}"),
        Mark::Renamed => ("ren2", "\u{21c4}"),
        Mark::Shape | Mark::Kind | Mark::Nan | Mark::Changed => ("chg", "\u{2260}"),
        Mark::Unread => ("chg", "?"),
        Mark::Waiting => ("", "\u{2026}"),
        Mark::Equal => ("", "="),
    };
    html! { <span class={classes(&["ch", class])}><i aria-hidden="true">{ sign }</i>{ mark.word() }</span> }
}

/// The filter box, with a chip for each mark.
#[component]
pub(super) fn FilterBar(props: &TableProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let compare = &props.compare;
    let view = &compare.view;
    let oninput = actor.on(move |actor, event: InputEvent| {
        let Some(text) = marks::typed(&event) else { return };
        actor.compare(move |compare| compare.show(|view| view.filter = text));
    });
    let fold = actor.on(move |actor, _: MouseEvent| {
        actor.compare(|compare| compare.show(|view| view.fold = !view.fold));
    });
    let hide = actor.on(move |actor, _: MouseEvent| {
        actor.compare(|compare| compare.show(|view| view.hide_equal = !view.hide_equal));
    });
    let counts = compare.pairs.as_ref().map(|pairs| pairs.counts()).unwrap_or_default();
    let chip = |kind: Mark, count: u64| {
        let on = view.only == Some(kind);

        let onclick = actor.on(move |actor, _: MouseEvent| {
            actor.compare(move |compare| {
                compare.show(|view| view.only = if on { None } else { Some(kind) });
            });
        });
        marks::chip(
            on,
            None,
            onclick,
            html! { <>{ mark(kind) }<span class="m">{ fmt::exact(count) }</span></> },
        )
    };
    let hits: u64 = compare.lines.iter().map(|line| line.pairs.len() as u64).sum();
    html! {
        <div class="pane-h filterbar">
            <label class="inp grow">
                <input id="filter" type="text" value={view.filter.clone()} {oninput} placeholder="filter, as in: weight dtype:bf16"
                    aria-label="Filter keys" autocomplete="off" autocapitalize="off" spellcheck="false"
                    aria-invalid={compare.filter_error.is_some().to_string()} />
                if compare.filter_error.is_some() {
                    <span class="hits w-warn">{ "not understood" }</span>
                } else if !view.filter.is_empty() {
                    <span class="hits" role="status">{ fmt::plural(hits, "key") }</span>
                } else {
                    <kbd class="car">{ "/" }</kbd>
                }
            </label>
            if let Some(error) = &compare.filter_error {
                <span class="filter-error" role="status">{ severity(Grade::Warning) }<span>{ error }</span></span>
            }
            <span class="chips" role="group" aria-label="Show">
                { marks::chip(view.fold, FOLD, fold, html! { "fold layers" }) }
                { marks::chip(view.hide_equal, Some("Collapse equal keys into one line (E)"), hide, html! { "hide equal" }) }
                { for MARKS.iter().zip(counts).filter(|(kind, count)| *count > 0 && **kind != Mark::Equal).map(|(kind, count)| chip(*kind, count)) }
            </span>
        </div>
    }
}

#[component]
pub(super) fn DifferenceTable(props: &TableProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let compare = &props.compare;
    let (node, small) = (use_node_ref(), use_small());
    let (room, _) = use_size(&node);
    // Scroll bars of touch screens lie over the rows.
    let touch = use_media("(pointer: coarse)");
    let scroll_bar = if touch { 0.0 } else { SCROLL_BAR };
    let room = if room > 0.0 { room.min(MAX_WIDTH) - scroll_bar } else { 0.0 };
    let shown =
        compare.pairs.clone().map(|pairs| (ByAddress(pairs), ByAddress(compare.lines.clone())));
    let scale = use_type_scale();
    let layout = use_memo((shown, room, small, scale), |&(ref shown, room, small, scale)| {
        let (ByAddress(pairs), ByAddress(lines)) = shown.as_ref().filter(|_| room > 0.0)?;
        Some(layout(pairs, lines, (room, scale), small))
    });
    let count = compare.lines.len();
    let (columns, lines) = match &*layout {
        Some((columns, lines)) => (Some(columns), lines.clone()),
        None => (None, LineLayout::Even { count, each: 24.0 }),
    };
    let width = columns.map_or(f64::INFINITY, |columns| key_width(columns, room, small));
    let row = {
        let (compare, lines) = (compare.clone(), lines.clone());
        actor.on(move |actor, at: usize| match &compare.pairs {
            Some(pairs) => {
                line(actor, (&compare, pairs), at, (lines.top(at)..lines.top(at + 1), width))
            }
            None => html! {},
        })
    };
    let hidden = columns.map(|columns| {
        let shown = columns.widths.iter().zip(["no-cd", "no-cs", "", "no-cb", "no-cv"]);
        shown.filter(|(width, _)| **width == 0.0).map(|(_, class)| class).collect::<Vec<_>>()
    });
    html! {
        <div class={classes!("gridbox", hidden)} style={columns.map(CompareColumns::style)} role="grid" aria-label="Differences" tabindex="0" aria-rowcount={count.to_string()}
            ref={node} aria-activedescendant={(count > 0).then(|| format!("line-{}", compare.at))}>
            { head(&actor, compare) }
            <Rows {lines} at={compare.at} scroll={compare.scroll} {row}>{ empty_table(&actor, compare) }</Rows>
        </div>
    }
}

/// Maximum width of the table, and width of its scroll bar, in pixels.
const MAX_WIDTH: f64 = 1800.0;
const SCROLL_BAR: f64 = 12.0;
/// On small screens, where a key has a line of its own, padding of a row in pixels.
const SMALL_PADDING: f64 = 32.0;

/// Returns the columns of a table of this width in pixels, and the positions of its lines. A key
/// that is too long for one line of text wraps.
fn layout(
    pairs: &Pairs,
    lines: &[CompareLine],
    (room, scale): (f64, f64),
    small: bool,
) -> (CompareColumns, LineLayout) {
    let columns = CompareColumns::of(pairs, lines, room, scale);
    let (each, key) = (if small { 48.0 } else { 24.0 }, key_width(&columns, room, small));
    let height = |line: &CompareLine| {
        let lines = KeyText::of(pairs, line).lines(key, &character_width).len();
        each + line_height() * (lines - 1) as f64
    };
    let lines = LineLayout::of_heights(lines.iter().map(height));
    (columns, lines)
}

/// Returns the width in pixels of the text of a key.
fn key_width(columns: &CompareColumns, room: f64, small: bool) -> f64 {
    if small { room - SMALL_PADDING } else { columns.key }
}

fn head(actor: &Actor, compare: &ComparisonState) -> Html {
    html! {
        <div class="head" role="row">
            { for COLUMNS.iter().map(|&(name, class, order)| {
                let sorted = order == Some(compare.view.order);

                let onclick = order.map(|order| actor.on(move |actor, _: MouseEvent| {
                    actor.compare(move |compare| compare.show(|view| view.order = order));
                }));
                let title = order.map(|_| format!("Sort by {name}"));
                html! {
                    <div class={classes(&["c", class])} role="columnheader" aria-sort={sorted.then_some("other")}>
                        <button {onclick} {title} disabled={order.is_none()}>{ name }
                            if sorted { <span class="up">{ " \u{25be}" }</span> }</button>
                    </div>
                }
            }) }
        </div>
    }
}

fn line(
    actor: &Actor,
    (compare, pairs): (&ComparisonState, &Pairs),
    at: usize,
    (place, width): (Range<f64>, f64),
) -> Html {
    let Some(line) = compare.lines.get(at) else { return html! {} };
    let selected = at == compare.at;
    let onclick = {
        let rest = line.rest;
        actor.on(move |actor, _: MouseEvent| {
            actor.compare(move |compare| match rest {
                true => compare.show(|view| view.hide_equal = false),
                false => compare.select(at),
            });
            if !rest {
                actor.tab(Tab::Tensor);
            }
        })
    };
    html! {
        <div key={at} id={format!("line-{at}")} class={classes(&["row", when(selected, "sel")])} role="row" data-key={visible(&line.key)} data-mark={line.mark.word()}
            aria-rowindex={(at + 1).to_string()} aria-selected={selected.to_string()} style={format!("top:{}px;height:{}px", place.start, place.end - place.start)} {onclick}>
            <div class="c ch1" role="gridcell">{ mark(line.mark) }</div>
            { if line.rest { equal_rows(line) } else { cells(pairs, line, width) } }
        </div>
    }
}

fn equal_rows(line: &CompareLine) -> Html {
    html! {
        <>
            <div class="c ck" role="gridcell">{ fmt::plural(line.pairs.len() as u64, "key") }</div>
            <div class="c cd"></div><div class="c cs"></div><div class="c cp"></div><div class="c cb"></div>
            <div class="c cv" role="gridcell"><span class="tag">{ "show them" }</span></div>
        </>
    }
}

fn cells(pairs: &Pairs, line: &CompareLine, width: f64) -> Html {
    let members = || line.pairs.iter().filter_map(|at| pairs.pairs.get(*at as usize));
    let Some(pair) = members().next() else { return html! {} };
    let (a, b) = (pairs.first(pair), pairs.second(pair));
    let Some(row) = pairs.row(pair) else { return html! {} };
    let undefined = || if line.mark == Mark::Nan { "undefined".to_owned() } else { String::new() };
    let key = KeyText::of(pairs, line);
    let parts = [("old", &*key.old), ("", &*key.key), ("dim", &*key.times)];
    let title = match line.old(pairs) {
        Some(old) => format!("{old} \u{2192} {}", line.key),
        None => line.key.clone(),
    };
    let one_shape =
        members().all(|other| pairs.row(other).is_some_and(|other| other.shape == row.shape));
    html! {
        <>
            <div class="c ck" role="gridcell" title={visible(&title)}>{ lined(&parts, key.lines(width, &character_width).into_iter()) }</div>
            <div class="c cd" role="gridcell">{ kind(a, b) }</div>
            <div class="c cs m" role="gridcell">{ if one_shape { shape(a, b) } else { "shapes differ".to_owned() } }</div>
            <div class="c cp num" role="gridcell">{ line.max_abs.map_or_else(undefined, float) }</div>
            <div class="c cb num" role="gridcell">{ line.cosine.map_or_else(undefined, |cosine| fmt::minus(&format!("{cosine:.5}"))) }</div>
            { changed(pairs, line) }
        </>
    }
}

/// Renders the dtype or kind of a pair; both sides if they differ.
fn kind(a: Option<&Row>, b: Option<&Row>) -> Html {
    let one = |row: &Row| match row.dtype.as_str() {
        "" => value_kind(row.kind_word()),
        name => dtype(name),
    };
    match (a, b) {
        (Some(a), Some(b)) if (a.kind, &a.dtype) != (b.kind, &b.dtype) => {
            html! { <>{ one(a) }<span class="x">{ "\u{2192}" }</span>{ one(b) }</> }
        }
        (_, Some(row)) | (Some(row), None) => one(row),
        (None, None) => html! {},
    }
}

/// Formats the shape of a pair; dimensions that differ are shown for both sides.
fn shape(a: Option<&Row>, b: Option<&Row>) -> String {
    match (a, b) {
        (Some(a), Some(b)) if a.kind.has_shape() && b.kind.has_shape() && a.shape != b.shape => {
            if a.shape.len() != b.shape.len() {
                return format!("{}\u{2192}{}", fmt::shape(&a.shape), fmt::shape(&b.shape));
            }
            let dims: Vec<String> = a
                .shape
                .iter()
                .zip(&b.shape)
                .map(|(a, b)| if a == b { a.to_string() } else { format!("{a}\u{2192}{b}") })
                .collect();
            format!("[{}]", dims.join(", "))
        }
        (_, Some(row)) | (Some(row), None) if row.kind.has_shape() => fmt::shape(&row.shape),
        _ => String::new(),
    }
}

/// Formats a float for a narrow cell.
pub(super) fn float(value: f64) -> String {
    fmt::cell(&format!("{value:?}"))
}

/// Width of a bar and height of the small chart in a row, in pixels; bars are 1 px apart.
const BAR: usize = 3;
const HEIGHT: f64 = 15.0;

/// Renders how much a line changed: a number and a small chart of the differences, or a few words.
fn changed(pairs: &Pairs, line: &CompareLine) -> Html {
    let difference_text = difference_text(pairs, line);
    // If a cast explains the difference, that is more useful than its size.
    let first = differences(pairs, line).next().map(|first| &first.kind);
    let is_cast = line.mark == Mark::Kind
        && matches!(first, Some(DifferenceKind::DType { values: Some(of), .. }) if of.is_cast());
    let most = line.spread.iter().copied().max().filter(|most| *most > 0 && !is_cast);
    // With NaNs on one side only there is no change to measure; the words say so instead.
    let (Some(most), Some(change)) = (most, line.change) else {
        return html! { <div class="c cv" role="gridcell" title={difference_text.clone()}><span class="tag v">{ difference_text }</span></div> };
    };
    let bars = line.spread.iter().enumerate().map(|(at, &count)| {
        // An empty bin is drawn as a baseline, and the smallest count is higher than that.
        let height = if count == 0 { 1.0 } else { (count as f64 / most as f64 * HEIGHT).max(1.5) };
        format!("M{} {HEIGHT}v-{height:.1}h{BAR}v{height:.1}z", at * (BAR + 1))
    });
    let wide = line.spread.len() * (BAR + 1) - 1;
    let label = format!(
        "{difference_text}. B \u{2212} A from \u{2212}3 to 3 times its root mean square, where they differ: {}",
        sides(&line.spread)
    );
    html! {
        <div class="c cv" role="gridcell" title={label.clone()}>
            <span class="tag v num only-l">{ number(change) }</span>
            <span class="tag v only-s">{ &difference_text }</span>
            <svg class="deltas" width={wide.to_string()} height={HEIGHT.to_string()} role="img" aria-label={label}>
                <path class="bars" d={bars.collect::<String>()} />
                <path class="zero" d={format!("M{:.1} 0v{HEIGHT}", wide as f64 / 2.0)} />
            </svg>
        </div>
    }
}

/// Describes the share of differences below, around and above zero.
fn sides(counts: &[u64]) -> String {
    let (below, rest) = counts.split_at(counts.len() / 2);
    let percent = |some: &[u64]| {
        let all = counts.iter().sum::<u64>().max(1);
        format!("{:.0} %", some.iter().sum::<u64>() as f64 / all as f64 * 100.0)
    };
    let (middle, above) = rest.split_at(rest.len().min(1));
    format!("{} below, {} around zero, {} above", percent(below), percent(middle), percent(above))
}

/// Returns the first difference of each pair of a line.
fn differences<'a>(
    pairs: &'a Pairs,
    line: &'a CompareLine,
) -> impl Iterator<Item = &'a Difference> {
    line.pairs.iter().filter_map(|at| pairs.difference(pairs.pairs.get(*at as usize)?))
}

/// Describes what differs, in a few words.
fn difference_text(pairs: &Pairs, line: &CompareLine) -> String {
    match line.mark {
        Mark::Added => return "only in B".to_owned(),
        Mark::Removed => return "only in A".to_owned(),
        Mark::Waiting => return "not read yet".to_owned(),
        Mark::Equal | Mark::Renamed => return "equal".to_owned(),
        Mark::Shape | Mark::Kind | Mark::Nan | Mark::Changed | Mark::Unread => {}
    }
    let (mut differing, mut elements, mut text) = (0u64, 0u64, None);
    for one in differences(pairs, line) {
        if let Some(of) = one.kind.elements() {
            differing = differing.saturating_add(of.differing);
            elements = elements.saturating_add(of.count);
        }
        let (left, right) = one.kind.sides();
        text.get_or_insert_with(|| match &one.kind {
            DifferenceKind::Unreadable { .. } => left,
            DifferenceKind::Shape { .. } => String::new(),
            // The dtypes are in a column of their own; this describes how the values compare.
            DifferenceKind::DType { values: Some(values), .. } => values.word.clone(),
            DifferenceKind::DType { .. } => format!("{left} \u{2192} {right}"),
            _ => format!("{} \u{2192} {}", fmt::minus(&left), fmt::minus(&right)),
        });
    }
    match (elements, text) {
        (0, Some(text)) => text,
        (0, None) => String::new(),
        (_, Some(text)) if line.mark == Mark::Kind => text,
        _ => match line.change {
            Some(change) => format!("{} \u{b7} {}", number(change), share(differing, elements)),
            None => share(differing, elements),
        },
    }
}

/// Describes how many elements differ: as `12 % differ`, or as a count if there are few.
pub(super) fn share(differing: u64, elements: u64) -> String {
    let percent = differing as f64 / elements.max(1) as f64 * 100.0;
    match percent {
        _ if differing == elements => "all differ".to_owned(),
        percent if percent < 1.0 || elements < 100 => {
            format!("{} of {} differ", fmt::exact(differing), fmt::count(elements))
        }
        percent => format!("{percent:.0} % differ"),
    }
}

/// Renders the empty table: nothing matches the filter, or nothing differs.
fn empty_table(actor: &Actor, compare: &ComparisonState) -> Html {
    let clear = actor.on(move |actor, _: MouseEvent| {
        actor.compare(|compare| {
            compare.show(|view| {
                view.filter.clear();
                view.only = None;
            });
        });
    });
    match &compare.pairs {
        None => {
            html! { <div role="row"><p class="empty" role="gridcell">{ "The keys are compared as soon as both structures are read." }</p></div> }
        }
        Some(pairs) if pairs.pairs.is_empty() => {
            html! { <div role="row"><p class="empty" role="gridcell">{ "Neither checkpoint has keys." }</p></div> }
        }
        Some(_) => html! {
            <div role="row"><p class="empty" role="gridcell">{ "No key matches " }
                if let Some(only) = compare.view.only { { format!("\u{2018}{}\u{2019} ", only.word()) } }
                if !compare.view.filter.is_empty() { { format!("\u{2018}{}\u{2019}", compare.view.filter) } }
                { ". " }<button class="textlink" onclick={clear}>{ "Clear filter" }</button></p></div>
        },
    }
}
