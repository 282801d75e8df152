//! The side pane of the heatmap: statistics, outliers, and what can be saved.

use std::rc::Rc;

use statelens_checkpoint::order;
use statelens_values::MatrixLine;
use statelens_values::picture::BlockMap;
use yew::prelude::*;

use super::grid::facts;
use super::ranked;
use super::save::Saved;
use super::spectrum;
use crate::export::page::{SaveAs, export_progress};
use crate::inspector::message::RowDetails;
use crate::matrix::message::ExportedFile;
use crate::matrix::state::view::text;
use crate::matrix::state::{ByIdentity, MatrixState, Profile};
use crate::page::model::actor::Actor;
use crate::state::fmt;
use crate::state::task::Task;
use crate::values::page::HistogramView;
use crate::values::state::number;

#[derive(Properties, PartialEq)]
pub(super) struct SideProps {
    pub(super) matrix: MatrixState,
    /// The map as drawn.
    pub(super) map: Option<ByIdentity<BlockMap>>,
    pub(super) inspected: Option<Rc<RowDetails>>,
    pub(super) tensor: AttrValue,
    /// The key and the slice.
    pub(super) title: AttrValue,
    pub(super) axes: (AttrValue, AttrValue),
    pub(super) dtype: AttrValue,
    /// Size of the whole tensor in bytes.
    pub(super) bytes: u64,
    pub(super) export: Task<ExportedFile>,
}

/// Rows or columns stand out from this multiple of the median on; `MAX_LISTED` is the maximum number
/// listed.
const OUTLIER_FACTOR: f64 = 1.5;
const MAX_LISTED: usize = 4;

#[component]
pub(super) fn Side(props: &SideProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let matrix = &props.matrix;
    let (rows, columns) = matrix.window();
    let values = props.inspected.as_ref().and_then(|inspected| inspected.values.as_ref());
    let values = values.map(|of| (&of.measured, &of.measured.statistics));
    let list = |facts: Vec<(&'static str, String)>| {
        html! { <dl class="kv">{ for facts.into_iter().map(|(label, value)| html! { <><dt>{ label }</dt><dd>{ value }</dd></> }) }</dl> }
    };
    html! {
        <aside class="side insp" aria-label="Numbers" tabindex="0">
            <section><div class="hd"><h3>{ "Under the lens" }</h3><span class="lab">{ fmt::plural(rows * columns, "value") }</span></div>
                { list(facts(matrix)) }</section>
            if let Some((measured, values)) = values {
                <section><div class="hd"><h3>{ "Whole tensor" }</h3><span class="lab">{ fmt::plural(values.count, "value") }</span></div>
                    { list(vec![
                        ("min", formatted(values.min)),
                        ("max", formatted(values.max)),
                        ("mean", formatted(values.mean)),
                        ("\u{3c3}", formatted(values.std)),
                        ("median", formatted(values.quantiles.map(|quantiles| quantiles[2]))),
                        ("|x| mean", formatted(values.abs_mean)),
                        ("zeros", fmt::exact(values.zeros)),
                        ("NaN \u{b7} Inf", format!("{} \u{b7} {}", fmt::exact(values.nan), fmt::exact(values.pos_inf + values.neg_inf))),
                        ("|x| > 6\u{3c3}", fmt::exact(values.beyond_6_std)),
                    ]) }
                    <HistogramView values={Rc::new(measured.clone())} dtype={props.dtype.to_string()} width={300.0} /></section>
            }
            <section><div class="hd"><h3>{ "Save the values" }</h3></div>
                { saves(props) }
                { export_progress(&actor, &props.export) }</section>
            if let Some(map) = &props.map {
                { outlier_table(&actor, matrix, &map.0, false) }
                { outlier_table(&actor, matrix, &map.0, true) }
                { ranked::rows(&actor, matrix, slice_bytes(matrix, props.bytes)) }
                { spectrum::section(&actor, matrix, &props.title) }
                <section><div class="hd"><h3>{ "Save the picture" }</h3></div>
                    <div class="saves">{ for [("png", "PNG"), ("svg", "SVG"), ("csv", "CSV")].into_iter().map(|(kind, name)| {
                        let (map, title, axes) = (map.clone(), props.title.clone(), props.axes.clone());
                        let (show, scaling) = (matrix.show, matrix.scaling);
                        let onclick = Callback::from(move |_: MouseEvent| {
                            let axes = (axes.0.as_str(), axes.1.as_str());
                            Saved { map: &map.0, title: &title, axes, show, scaling }.save(kind);
                        });
                        html! { <button class="btn" id={format!("save-{kind}")} {onclick}>{ name }</button> }
                    }) }</div></section>
            }
        </aside>
    }
}

/// Returns the size of the shown matrix in bytes, given the size of the tensor.
fn slice_bytes(matrix: &MatrixState, bytes: u64) -> u64 {
    let all = matrix.view.shape.iter().fold(1, |all: u64, dim| all.saturating_mul(*dim));
    let share = u128::from(bytes) * u128::from(matrix.view.elements()) / u128::from(all.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// Renders the buttons that save the drawn matrix to a file, and the requested slice if that has
/// more dimensions.
fn saves(props: &SideProps) -> Html {
    let (selection, view) = (&props.matrix.selection, &props.matrix.view);
    let requested = text(&view.requested(), &view.shape);
    let save = |slice: &str, label: &'static str| {
        html! { <SaveAs key={label} row={selection.row} tensor={props.tensor.clone()} slice={slice.to_owned()} {label} dtype={props.dtype.clone()} /> }
    };
    if requested == selection.slice {
        return save(&selection.slice, "save as");
    }
    html! { <>{ save(&requested, "save the slice as") }{ save(&selection.slice, "save the drawn slice as") }</> }
}

fn formatted(value: Option<f64>) -> String {
    value.map_or_else(|| "\u{2013}".to_owned(), number)
}

/// Renders the rows or columns whose profile is far above the median.
fn outlier_table(actor: &Actor, matrix: &MatrixState, map: &BlockMap, rows: bool) -> Html {
    let (lines, block, of) = match rows {
        true => (&map.rows, map.block.0, map.matrix.0),
        false => (&map.columns, map.block.1, map.matrix.1),
    };
    let found = outliers(lines, matrix.profile);
    if found.is_empty() {
        return html! {};
    }
    let turned = matrix.transposed;
    let name = if rows != turned { "Rows that stand out" } else { "Columns that stand out" };
    html! {
        <section><div class="hd"><h3>{ name }</h3></div>
            <table class="outstanding"><thead><tr><th>{ if rows != turned { "row" } else { "column" } }</th><th>{ if matrix.profile == Profile::Norm { "norm" } else { "max |x|" } }</th><th title="ratio to the median of the others">{ "\u{f7} typical" }</th></tr></thead>
            <tbody>{ for found.into_iter().map(|(at, most, times)| {
                let start = at as u64 * block;
                let end = (start + block).min(of) - 1;
                let text = if start == end { start.to_string() } else { format!("{start}\u{2013}{end}") };
                // The block with the largest magnitude in this row or column of blocks.
                let across = map.size.1;
                let blocks: Vec<usize> = match rows {
                    true => (at * across..(at + 1) * across).collect(),
                    false => (0..map.size.0).map(|row| row * across + at).collect(),
                };
                let best = blocks.into_iter().filter(|at| map.largest[*at].is_finite())
                    .max_by(|one, other| map.largest[*one].abs().total_cmp(&map.largest[*other].abs()));
                let best = best.map(|best| if turned { best % across * map.size.0 + best / across } else { best });

                let onclick = actor.on(move |actor, _: MouseEvent| actor.matrix(move |matrix| {
                    if let Some(at) = best.and_then(|best| matrix.peak_of_block(best)) {
                        matrix.centre(at);
                    }
                }));
                html! { <tr><td><button class="textlink m" {onclick}>{ text }</button></td><td>{ number(most) }</td><td>{ format!("{times:.1}") }</td></tr> }
            }) }</tbody></table></section>
    }
}

/// Returns the lines far above the median, the farthest first: index, value, multiple of the
/// median.
fn outliers(lines: &[MatrixLine], profile: Profile) -> Vec<(usize, f64, f64)> {
    let mut sorted: Vec<f64> = lines.iter().map(|line| profile.of(line)).collect();
    order::by(&mut sorted, f64::total_cmp);
    let typical = sorted.get(sorted.len() / 2).copied().unwrap_or(0.0);
    if typical <= 0.0 || lines.len() < 8 {
        return Vec::new();
    }
    let each = lines.iter().map(|line| profile.of(line)).enumerate();
    let each = each.map(|(at, number)| (at, number, number / typical));
    let mut found: Vec<(usize, f64, f64)> =
        each.filter(|(_, _, times)| *times >= OUTLIER_FACTOR).collect();
    order::by(&mut found, |one, other| other.2.total_cmp(&one.2));
    found.truncate(MAX_LISTED);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_rows_far_above_the_median() {
        let line = |abs_max: f64| MatrixLine { abs_max, ..MatrixLine::default() };
        let mut lines = vec![line(1.0); 20];
        (lines[3], lines[7]) = (line(2.0), line(30.0));
        let most = Profile::MaxAbs;
        assert_eq!(outliers(&lines, most), [(7, 30.0, 30.0), (3, 2.0, 2.0)]);
        assert!(outliers(&vec![line(0.0); 20], most).is_empty());
        assert!(outliers(&lines[..4], most).is_empty());
        lines[9].norm = 8.0;
        assert!(outliers(&lines, Profile::Norm).is_empty(), "the others have none");
    }
}
