//! The window under the lens: its values as colours, and the exact values around the selected one.

use statelens_checkpoint::order;
use statelens_values::picture::of_value;
use web_sys::Element;
use yew::prelude::*;

use super::canvas::{Canvas, ColouredCells};
use crate::matrix::state::{MatrixState, RowColumn};
use crate::page::hooks::use_size;
use crate::page::marks::{classes, copy, when};
use crate::page::model::actor::Actor;
use crate::state::fmt;
use crate::values::state::number;

#[derive(Properties, PartialEq)]
pub(super) struct GridProps {
    pub(super) matrix: MatrixState,
    pub(super) dark: bool,
    /// Size of the whole tensor in bytes.
    pub(super) bytes: u64,
}

/// Number of rows of the grid, and widths in pixels of its cells and of its row heads.
const ROWS: u64 = 11;
const WIDTH: f64 = 70.0;
const HEAD: f64 = 64.0;

#[component]
pub(super) fn Grid(props: &GridProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let (canvas, table) = (use_node_ref(), use_node_ref());
    let (wide, _) = use_size(&table);
    let under = use_state(|| None::<RowColumn>);
    let matrix = &props.matrix;
    let turned = matrix.transposed;
    let turn = move |(one, other): RowColumn| if turned { (other, one) } else { (one, other) };
    let window = turn(matrix.window());
    let lens = turn(matrix.lens);
    let limit = {
        let cells = matrix.cells.clone();
        *use_memo(cells.clone(), move |_| cells.map_or(0.0, |cells| limit(&cells.0.numbers)))
    };
    let scaling = matrix.scaling;
    let dark = props.dark;
    let colour = {
        let matrix = matrix.clone();
        move |place: RowColumn| {
            let (cells, at) = matrix.cell(place)?;
            let value = *cells.numbers.get(at)?;
            Some(of_value(value.clamp(-limit, limit), limit, scaling, dark))
        }
    };
    let drawn = ColouredCells {
        width: window.1 as usize,
        colours: (0..window.0 * window.1)
            .map(|at| colour(turn((lens.0 + at / window.1, lens.1 + at % window.1))))
            .collect(),
    };
    let place = {
        let canvas = canvas.clone();
        move |event: &PointerEvent| -> Option<RowColumn> {
            let rect = canvas.cast::<Element>()?.get_bounding_client_rect();
            let part = |at: f64, size: f64| (at / size.max(1.0)).clamp(0.0, 0.999_999);
            let down = part(f64::from(event.client_y()) - rect.top(), rect.height());
            let across = part(f64::from(event.client_x()) - rect.left(), rect.width());
            let row = lens.0 + (down * window.0 as f64) as u64;
            Some(turn((row, lens.1 + (across * window.1 as f64) as u64)))
        }
    };
    let onpointermove = {
        let (place, under) = (place.clone(), under.clone());
        Callback::from(move |event: PointerEvent| under.set(place(&event)))
    };
    let onpointerdown = actor.on(move |actor, event: PointerEvent| {
        if let Some(at) = place(&event) {
            actor.matrix(move |matrix| matrix.select_value(at));
        }
    });
    let onpointerleave = {
        let under = under.clone();
        Callback::from(move |_: PointerEvent| under.set(None))
    };

    // Each notch scrolls by a few rows, or columns with Shift.
    let onwheel = {
        let under = under.clone();
        actor.on(move |actor, event: WheelEvent| {
            if event.ctrl_key() {
                return;
            }
            event.prevent_default();
            // After scrolling, another value is under the pointer.
            under.set(None);
            let rows = |delta: f64| match delta {
                0.0 => 0,
                delta => (delta.abs() / 33.0).ceil() as i64 * delta.signum() as i64,
            };
            let (down, across) = match event.shift_key() {
                true => (0.0, event.delta_y() + event.delta_x()),
                false => (event.delta_y(), event.delta_x()),
            };
            actor.matrix(move |matrix| matrix.scroll((rows(down), rows(across))));
        })
    };

    // The grid shows the values around the selected one, within the lens.
    let at = turn(matrix.at);
    let columns = (((wide - HEAD) / WIDTH).floor().max(2.0) as u64).min(window.1);
    let rows = ROWS.min(window.0);
    let first = |at: u64, size: u64, lens: u64, window: u64| {
        at.saturating_sub(size / 2).clamp(lens, lens + window - size)
    };
    let (top, left) = (first(at.0, rows, lens.0, window.0), first(at.1, columns, lens.1, window.1));
    let selection = {
        let percent = |part: u64, of: u64| part as f64 / of.max(1) as f64 * 100.0;
        format!(
            "left:{:.2}%;top:{:.2}%;width:{:.2}%;height:{:.2}%",
            percent(left - lens.1, window.1),
            percent(top - lens.0, window.0),
            percent(columns, window.1),
            percent(rows, window.0)
        )
    };
    let size =
        format!("--w:{}px;--h:{}px", window.1 * matrix.zoom, (window.0 * matrix.zoom).max(8));
    let copied = |between: &'static str| {
        let matrix = matrix.clone();
        Callback::from(move |_: MouseEvent| copy(&text(&matrix, turned, between)))
    };
    let label = |what: &'static str| {
        if turned { if what == "row" { "column" } else { "row" } } else { what }
    };
    // Row and column numbers are those of the tensor, even if a slice of it is shown.
    let row_of = |row: u64| turn(matrix.indices(turn((row, lens.1)))).0;
    let column_of = |column: u64| turn(matrix.indices(turn((lens.0, column)))).1;
    let range = |of: &dyn Fn(u64) -> u64, at: u64, size: u64| {
        format!("{}\u{2013}{}", of(at), of((at + size).saturating_sub(1)))
    };
    let description = format!(
        "{}s {}, {}s {}, colours to \u{b1}{}; values are in the table",
        label("row"),
        range(&row_of, lens.0, window.0),
        label("column"),
        range(&column_of, lens.1, window.1),
        number(limit)
    );
    let shown = (*under).filter(|place| matrix.cell(*place).is_some()).unwrap_or(matrix.at);
    html! {
        <div class="under">
            <section class="lensed" aria-label="Under the lens">
                <div class="hd"><h3>{ "Under the lens" }</h3>
                    <span class="lab">{ format!("{} \u{d7} {}, {} px each", window.0, window.1, matrix.zoom) }</span></div>
                <div class="map" id="lens" ref={canvas} role="img" aria-label={description} style={size} {onpointermove} {onpointerdown} {onpointerleave} onwheel={onwheel.clone()}>
                    <Canvas cells={drawn} />
                    <i class="frame" style={selection}></i>
                </div>
                <p class="read m dim">{ format!("colours to \u{b1}{}", number(limit)) }</p>
            </section>
            <section class="values" ref={table} aria-label="Values">
                <div class="hd"><h3>{ "Values" }</h3>
                    <span class="m selected-value" id="selected-value" aria-live="polite">{ selected_value(matrix, shown, props.bytes) }</span>
                    <span class="lab">{ "copy as " }<button class="textlink" onclick={copied("\t")}>{ "text" }</button>{ " " }<button class="textlink" onclick={copied(",")}>{ "CSV" }</button></span></div>
                <table class="grid" {onwheel}>
                    <thead><tr><td></td>{ for (left..left + columns).map(|column| html! {
                        <th scope="col" class={when(column == at.1, "at")} aria-label={format!("{} {}", label("column"), column_of(column))}>{ column_of(column) }</th>
                    }) }</tr></thead>
                    <tbody>{ for (top..top + rows).map(|row| html! {
                        <tr><th scope="row" class={when(row == at.0, "at")} aria-label={format!("{} {}", label("row"), row_of(row))}>{ row_of(row) }</th>
                            { for (left..left + columns).map(|column| {
                                let place = turn((row, column));
                                cell(&actor, matrix, place, colour(place), &under)
                            }) }</tr>
                    }) }</tbody>
                </table>
            </section>
        </div>
    }
}

fn cell(
    actor: &Actor,
    matrix: &MatrixState,
    place: RowColumn,
    colour: Option<[u8; 3]>,
    under: &UseStateHandle<Option<RowColumn>>,
) -> Html {
    let on = place == matrix.at;
    let text = matrix.cell(place).map(|(cells, at)| cells.texts[at].clone());

    let onclick =
        actor.on(move |actor, _: MouseEvent| actor.matrix(move |it| it.select_value(place)));
    let under = under.clone();
    let onpointerenter = Callback::from(move |_: PointerEvent| under.set(Some(place)));
    let style = colour.map(|[red, green, blue]| format!("--tint:rgb({red} {green} {blue})"));
    let shown = match &text {
        Some(text) => fmt::cell(text),
        None if matrix.has(place) => "\u{b7}".to_owned(),
        None => String::new(),
    };
    html! {
        <td class={classes(&[when(on, "at")])} aria-current={on.then_some("location")} title={text} {style} {onclick} {onpointerenter}>{ shown }</td>
    }
}

/// Renders a value: its index, the value, its bits, its offset in bytes.
fn selected_value(matrix: &MatrixState, place: RowColumn, bytes: u64) -> Html {
    let index = fmt::shape(&matrix.index(place));
    let Some((cells, at)) = matrix.cell(place) else { return html! { { index } } };
    let byte = matrix.number(place).saturating_mul(cells.size);
    let byte = match cells.first {
        Some(first) => fmt::in_file(first.saturating_add(byte)),
        None => format!("byte {} of {} in the tensor", fmt::exact(byte), fmt::exact(bytes)),
    };
    html! {
        <>
            { index }{ " " }<b>{ fmt::minus(&cells.texts[at]) }</b>
            <span class="dim">{ format!(" bits {} \u{b7} {byte}", cells.bits[at]) }</span>
        </>
    }
}

/// Formats the values under the lens as text, one line per row.
fn text(matrix: &MatrixState, turned: bool, between: &str) -> String {
    let (rows, columns) = matrix.window();
    let (down, across) = if turned { (columns, rows) } else { (rows, columns) };
    let one = |row: u64, column: u64| {
        let (row, column) = if turned { (column, row) } else { (row, column) };
        let place = (matrix.lens.0 + row, matrix.lens.1 + column);
        matrix.cell(place).map_or_else(String::new, |(cells, at)| cells.texts[at].clone())
    };
    let line = |row| (0..across).map(|column| one(row, column)).collect::<Vec<_>>().join(between);
    (0..down).map(line).collect::<Vec<_>>().join("\n")
}

/// Returns the 98th percentile of the magnitudes as the limit of the colour scale, so that outliers
/// don't make all other values pale.
fn limit(numbers: &[f64]) -> f64 {
    let mut sorted: Vec<f64> =
        numbers.iter().map(|value| value.abs()).filter(|value| value.is_finite()).collect();
    order::by(&mut sorted, f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    let most = sorted.last().copied().unwrap_or(0.0);
    let near = sorted.get(last * 98 / 100).copied().unwrap_or(0.0);
    if near > 0.0 { near } else { most }
}

/// Returns statistics of the values under the lens, as pairs of label and text.
pub(super) fn facts(matrix: &MatrixState) -> Vec<(&'static str, String)> {
    let Some(cells) = &matrix.cells else { return Vec::new() };
    let finite: Vec<f64> =
        cells.0.numbers.iter().copied().filter(|value| value.is_finite()).collect();
    let count = finite.len().max(1) as f64;
    let mean = finite.iter().sum::<f64>() / count;
    let std = (finite.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt();
    let not_finite = cells.0.texts.iter().filter(|text| !text.is_empty()).count() - finite.len();
    let mut facts = vec![
        ("min", number(finite.iter().copied().fold(f64::INFINITY, f64::min))),
        ("max", number(finite.iter().copied().fold(f64::NEG_INFINITY, f64::max))),
        ("mean", number(mean)),
        ("\u{3c3}", number(std)),
    ];
    if finite.is_empty() {
        facts.clear();
    }
    facts.push(("not finite", fmt::exact(not_finite as u64)));
    facts
}
