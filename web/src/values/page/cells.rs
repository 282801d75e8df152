//! Statistics of values in the table: the columns, and a sparkline over the layers of a fold.

use std::collections::HashMap;

use statelens_values::StatisticsField;
use yew::prelude::*;

use crate::page::marks::{classes, when};
use crate::rows::Row;
use crate::state::fmt;
use crate::state::work::OpenWork;
use crate::table::state::fit::{BYTES, PARAMS, SHAPE};
use crate::table::state::{COLUMNS, Column, Fold, FoldPattern};
use crate::values::state::{RowTotals, figure, number, percent};

/// A column of values: column, title, CSS classes.
type ValueColumn = (Option<Column>, &'static str, &'static str);

pub(super) const VALUES: [ValueColumn; SHAPE] = [
    (Some(Column::Measure(StatisticsField::Std)), "\u{3c3}", "wsd num"),
    (None, "by layer", "wly"),
    (Some(Column::Measure(StatisticsField::AbsMax)), "|x| max", "wmx num"),
    (Some(Column::Measure(StatisticsField::Min)), "min", "wmn num"),
    (Some(Column::Measure(StatisticsField::Max)), "max", "wmm num"),
    (Some(Column::Measure(StatisticsField::Zeros)), "zeros", "wzr num"),
    (Some(Column::Measure(StatisticsField::Nan)), "NaN, Inf", "wnn num"),
];

/// Returns the columns of the table. Once values were read, the columns of values replace those for
/// parameters and plain values.
pub fn columns(work: &OpenWork) -> Vec<ValueColumn> {
    let class = |column| match column {
        Column::Key => "ck",
        Column::Kind => "cd",
        Column::Shape => "cs",
        Column::Params => "cp num",
        Column::Bytes => "cb num",
        Column::Value | Column::Measure(_) => "cv",
    };
    let kindless = work.widths.kind == 0.0;
    let plain = COLUMNS
        .iter()
        .filter(|(column, _)| !(kindless && *column == Column::Kind))
        .map(|&(column, name)| (Some(column), name, class(column)));
    match work.view.weights.any() {
        false => plain.collect(),
        true => {
            let plain_columns = [Some(Column::Params), Some(Column::Value)];
            plain
                .filter(|(column, ..)| !plain_columns.contains(column))
                .chain(shown_columns(work))
                .collect()
        }
    }
}

fn shown_columns(work: &OpenWork) -> impl Iterator<Item = ValueColumn> {
    let bits = work.view.columns.measures();
    // The sparkline over layers needs folded rows.
    let folded = !work.table.folds.is_empty();
    let wanted = move |(at, (_, _, class)): &(usize, ValueColumn)| {
        bits >> at & 1 == 1 && (folded || *class != "wly")
    };
    (0..).zip(VALUES).filter(wanted).map(|(_, column)| column)
}

/// Returns the widths in pixels of the columns after the key. A narrow table has no column of plain
/// values. A column that was dragged has its `own` width, by its CSS class.
pub fn widths(work: &OpenWork, narrow: bool, own: &HashMap<&str, f64>) -> Vec<f64> {
    let optional = |column: usize| {
        let shown = work.view.columns.has(column);
        shown.then(|| work.widths.width(column, !work.table.folds.is_empty()))
    };
    let width = |class: &str| match class {
        "cd" => Some(work.widths.kind),
        "cs" => optional(SHAPE),
        "cp" => optional(PARAMS),
        "cb" => optional(BYTES),
        "cv" => (!narrow).then_some(work.widths.value),
        _ => VALUES.iter().position(|(.., classes)| classes.starts_with(class)).and_then(optional),
    };
    let after_key = columns(work).into_iter().skip(1);
    let after_key = after_key.map(|(.., classes)| classes.split(' ').next().unwrap_or_default());
    after_key
        .filter_map(|class| width(class).map(|width| own.get(class).copied().unwrap_or(width)))
        .collect()
}

/// Renders the cells of a tensor.
pub fn cells(work: &OpenWork, id: u32, row: &Row) -> Html {
    if row.link.is_some() {
        return html! {};
    }
    of_sum(work, &work.view.weights.sum(std::iter::once(id)), html! { <div class="c wly"></div> })
}

/// Renders the cells of a pattern, or of a fold with a single pattern. Other folds have totals
/// only.
pub fn folded(
    work: &OpenWork,
    fold: &Fold,
    pattern: Option<&FoldPattern>,
    onselect: &Callback<u32>,
) -> Html {
    let weights = &work.view.weights;
    let Some(pattern) = pattern else {
        let rows = fold.patterns.iter().flat_map(|pattern| pattern.rows.iter().copied());
        let sum = RowTotals { std: None, ..weights.sum(rows) };
        return of_sum(work, &sum, html! { <div class="c wly"></div> });
    };
    let sum = weights.sum(pattern.rows.iter().copied());
    let deviations: Vec<Option<f64>> =
        pattern.rows.iter().map(|&row| weights.get(row).and_then(|values| values.std)).collect();
    let marked = |row: &u32| {
        weights.is_outlier(*row) || weights.get(*row).is_some_and(|it| it.nan + it.infinite > 0)
    };
    let marks: Vec<usize> =
        (0..).zip(&pattern.rows).filter(|(_, row)| marked(row)).map(|(at, _)| at).collect();
    let current = work.row().and_then(|row| pattern.rows.iter().position(|&id| id == row));
    // Only the sparkline of the selected line is reachable by Tab; all would be too many stops.
    let is_selected = current.is_some() || work.fold().is_some_and(|of| of.name == fold.name);
    let names: Vec<String> =
        pattern.rows.iter().map(|&row| layer(&work.rows[row as usize].key, fold)).collect();
    let onpick = {
        let (onselect, rows) = (onselect.clone(), pattern.rows.clone());
        Callback::from(move |at: usize| {
            if let Some(&row) = rows.get(at) {
                onselect.emit(row);
            }
        })
    };
    let line = html! { <div class="c wly" role="gridcell"><Sparkline {deviations} {marks} {current} {names} {onpick} {is_selected} /></div> };
    of_sum(work, &sum, line)
}

/// Returns the name of a key's layer, such as `layer 17`.
fn layer(key: &str, fold: &Fold) -> String {
    let one = fold.container.strip_suffix('s').filter(|name| name.len() > 2);
    let number = key.split(['.', '/']).find(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    match number {
        Some(number) => format!("{} {number}", one.unwrap_or(&fold.container)).trim().to_owned(),
        None => key.to_owned(),
    }
}

fn of_sum(work: &OpenWork, totals: &RowTotals, line: Html) -> Html {
    let dot = || html! { <span class="dim" title="not read yet">{ "\u{b7}" }</span> };
    let unread = totals.read == 0;
    let some = |value: Option<f64>| match value {
        Some(value) => html! { { figure(value) } },
        None if unread => dot(),
        None => html! {},
    };
    let bad = totals.nan + totals.infinite;
    let cell = |class: &'static str| {
        let content = match class.get(..3).unwrap_or_default() {
            "wly" => return line.clone(),
            "wsd" => some(totals.std),
            "wmx" => some(totals.abs_max),
            "wmn" => some(totals.min),
            "wmm" => some(totals.max),
            _ if unread => dot(),
            "wzr" => html! { { percent(totals.zeros, totals.count) } },
            _ if bad > 0 => {
                html! { <span class="w-warn" title={not_finite(totals)}>{ fmt::exact(bad) }{ " !" }</span> }
            }
            _ => html! { <span class="dim">{ "\u{2013}" }</span> },
        };
        html! { <div class={classes(&["c", class])} role="gridcell">{ content }</div> }
    };
    shown_columns(work).map(|(.., class)| cell(class)).collect()
}

fn not_finite(totals: &RowTotals) -> String {
    format!("{} NaN, {} infinite", fmt::exact(totals.nan), fmt::exact(totals.infinite))
}

/// Formats the statistics in one line, for small screens: without the standard deviation if there
/// are NaN or infinite values, for which there would be no room.
pub fn values_line(totals: &RowTotals) -> String {
    let bad = [(totals.nan, "NaN"), (totals.infinite, "Inf")]
        .map(|(count, name)| (count > 0).then(|| format!("{} {name}", fmt::exact(count))));
    let std = totals.std.filter(|_| bad == [None, None]);
    let std = std.map(|std| format!("\u{3c3} {}", number(std)));
    let max = totals.abs_max.map(|max| format!("max {}", number(max)));
    [std, max].into_iter().chain(bad).flatten().collect::<Vec<_>>().join(" \u{b7} ")
}

/// Properties of a sparkline of standard deviations over layers.
#[derive(Properties, PartialEq)]
struct SparklineProps {
    /// Standard deviation of each layer; `None` if it was not read.
    deviations: Vec<Option<f64>>,
    /// Indices of marked layers: outliers, and layers with NaN or infinite values.
    marks: Vec<usize>,
    /// Index of the selected layer.
    current: Option<usize>,
    /// Names of the layers.
    names: Vec<String>,
    /// Called with the index of the layer that was chosen.
    onpick: Callback<usize>,
    /// Whether the table line is selected.
    is_selected: bool,
}

const WIDTH: f64 = 76.0;
const HEIGHT: f64 = 18.0;

#[component]
fn Sparkline(props: &SparklineProps) -> Html {
    let hovered = use_state(|| None::<usize>);
    let of = |marked: bool| {
        let all = props.deviations.iter().enumerate();
        let some = all.filter(move |(at, _)| marked || !props.marks.contains(at));
        some.filter_map(|(_, value)| *value)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), it| (a.min(it), b.max(it)))
    };
    // The scale ignores outliers, which would flatten the line of the others. They are drawn at the
    // edge with their marks.
    let (low, high) = of(false);
    let (least, most) = of(true);
    let (low, high) = if low < high { (low, high) } else { (least, most) };
    let count = props.deviations.len();
    if count < 2 || least > most {
        return html! {};
    }
    let x = |at: usize| 2.0 + at as f64 / (count - 1) as f64 * (WIDTH - 4.0);
    let y = |value: f64| {
        let part = if high > low { (value - low) / (high - low) } else { 0.5 };
        let part = part.clamp(-0.1, 1.1);
        HEIGHT - 3.0 - part * (HEIGHT - 6.0)
    };
    let mut path = String::new();
    let mut pen_down = false;
    for (at, value) in props.deviations.iter().enumerate() {
        if let Some(value) = value {
            path += &format!("{}{:.1} {:.1}", if pen_down { "L" } else { "M" }, x(at), y(*value));
        }
        pen_down = value.is_some();
    }
    let parts = |at: usize| {
        let name = props.names.get(at).map_or("", String::as_str);
        match props.deviations.get(at).copied().flatten() {
            Some(value) => format!("{name}: \u{3c3} {}", number(value)),
            None => format!("{name}: not read"),
        }
    };
    let at = {
        move |event: &MouseEvent| {
            let part = (f64::from(event.offset_x()) - 2.0) / (WIDTH - 4.0);
            (part.clamp(0.0, 1.0) * (count - 1) as f64).round() as usize
        }
    };
    let onmousemove = {
        let hovered = hovered.clone();
        Callback::from(move |event: MouseEvent| hovered.set(Some(at(&event))))
    };
    let onmouseleave = {
        let hovered = hovered.clone();
        Callback::from(move |_: MouseEvent| hovered.set(None))
    };
    let onclick = {
        let onpick = props.onpick.clone();
        Callback::from(move |event: MouseEvent| {
            event.stop_propagation();
            onpick.emit(at(&event));
        })
    };
    let shown = hovered.or(props.current);
    let onkeydown = {
        let (hovered, onpick) = (hovered.clone(), props.onpick.clone());
        Callback::from(move |event: KeyboardEvent| {
            let from = shown.unwrap_or(0);
            let next = match event.key().as_str() {
                "ArrowLeft" => from.saturating_sub(1),
                "ArrowRight" => (from + usize::from(shown.is_some())).min(count - 1),
                "Home" => 0,
                "End" => count - 1,
                "Enter" => from,
                _ => return,
            };
            event.prevent_default();
            event.stop_propagation();
            match event.key().as_str() {
                "Enter" => onpick.emit(from),
                _ => hovered.set(Some(next)),
            }
        })
    };
    let onblur = {
        let hovered = hovered.clone();
        Callback::from(move |_: FocusEvent| hovered.set(None))
    };
    let label = format!("\u{3c3} by layer, from {} to {}", number(least), number(most));
    html! {
        <span class="spark" role="slider" tabindex={if props.is_selected { "0" } else { "-1" }} aria-label={label} aria-valuemin="0"
            aria-valuemax={(count - 1).to_string()} aria-valuenow={shown.unwrap_or(0).to_string()} aria-valuetext={shown.map(parts)}
            {onmousemove} {onmouseleave} {onclick} {onkeydown} {onblur}>
            if let Some(at) = *hovered { <span class="tip" aria-hidden="true">{ parts(at) }</span> }
            <svg width={WIDTH.to_string()} height={HEIGHT.to_string()} aria-hidden="true">
                if let Some(at) = shown { <path class={classes(&["at", when(hovered.is_some(), "hover")])} d={format!("M{:.1} 1V{}", x(at), HEIGHT - 1.0)} /> }
                <path class="line" d={path} />
                { for props.marks.iter().map(|&at| {
                    let (x, y) = (x(at), props.deviations[at].map_or(HEIGHT / 2.0, y));
                    html! { <path class="odd" d={format!("M{:.1} {:.1}l3 5h-6z", x, (y - 3.0).max(0.5))} /> }
                }) }
            </svg>
        </span>
    }
}
