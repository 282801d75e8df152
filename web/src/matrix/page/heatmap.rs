//! The heatmap of the whole matrix: coloured blocks, profiles along the edges, axes, and the lens.

use std::cell::Cell;
use std::rc::Rc;

use statelens_values::MatrixLine;
use statelens_values::picture::{BlockMap, Colours, INFINITE, NAN, ticks};
use web_sys::Element;
use yew::prelude::*;

use super::canvas::{Canvas, ColouredCells};
use crate::matrix::state::{ByIdentity, MatrixState, Profile, RowColumn};
use crate::page::hooks::{use_size, use_small};
use crate::page::marks::{classes, when};
use crate::page::model::actor::Actor;
use crate::state::fmt;
use crate::values::state::number;

#[derive(Properties, PartialEq)]
pub(super) struct HeatmapProps {
    pub(super) matrix: MatrixState,
    /// The map as drawn, transposed if the user chose so.
    pub(super) map: ByIdentity<BlockMap>,
    pub(super) colours: Rc<Colours>,
}

/// Pixels that the pointer may move during a click.
const DRAG_THRESHOLD: f64 = 4.0;
/// Minimum and maximum size of a square cell in pixels.
const SQUARE: (f64, f64) = (6.0, 28.0);
/// Pixels taken up to the left and right of the map, and in total above and below it by all that
/// must stay visible.
const MARGIN_WIDTH: f64 = 80.0;
const MARGIN_HEIGHT: f64 = 540.0;
const MIN_HEIGHT: f64 = 150.0;
const SMALL_HEIGHT: f64 = 240.0;

#[component]
pub(super) fn Heatmap(props: &HeatmapProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let (node, outer) = (use_node_ref(), use_node_ref());
    let (wide, high) = use_size(&node);
    let (room, _) = use_size(&outer);
    let small = use_small();
    let under = use_state(|| None::<(usize, usize)>);
    let pressed = use_memo((), |()| Cell::new(None::<(f64, f64, bool)>));
    let (matrix, map) = (&props.matrix, &props.map.0);
    let cells = {
        let (map, colours) = (map.clone(), props.colours.clone());
        use_memo((props.map.clone(), props.colours.clone()), move |_| ColouredCells {
            width: map.size.1,
            colours: (0..map.largest.len()).map(|at| colours.block(&map, at)).collect(),
        })
    };
    let turned = matrix.transposed;
    let part = {
        let node = node.clone();
        move |event: &PointerEvent| {
            let rect = node.cast::<Element>()?.get_bounding_client_rect();
            let down = (f64::from(event.client_y()) - rect.top()) / rect.height().max(1.0);
            let across = (f64::from(event.client_x()) - rect.left()) / rect.width().max(1.0);
            Some((down.clamp(0.0, 0.999_999), across.clamp(0.0, 0.999_999)))
        }
    };
    // The element under the pointer, from its relative position; blocks at the ends may be partial.
    let place = {
        let (size, block, matrix) = (map.size, map.block, matrix.size);
        move |(down, across): (f64, f64)| -> RowColumn {
            let row = (down * size.0 as f64 * block.0 as f64) as u64;
            let column = (across * size.1 as f64 * block.1 as f64) as u64;
            let (row, column) = if turned { (column, row) } else { (row, column) };
            (row.min(matrix.0 - 1), column.min(matrix.1 - 1))
        }
    };
    let block = {
        let size = map.size;
        move |(down, across): (f64, f64)| {
            ((down * size.0 as f64) as usize, (across * size.1 as f64) as usize)
        }
    };
    let onpointerdown = {
        let (pressed, part) = (pressed.clone(), part.clone());
        Callback::from(move |event: PointerEvent| {
            if event.button() == 0 && part(&event).is_some() {
                let at = (f64::from(event.client_x()), f64::from(event.client_y()), false);
                pressed.set(Some(at));
                if let Some(node) = event.target_dyn_into::<Element>() {
                    let _ = node.set_pointer_capture(event.pointer_id());
                }
            }
        })
    };
    let onpointermove = {
        let (pressed, part, under) = (pressed.clone(), part.clone(), under.clone());
        actor.on(move |actor, event: PointerEvent| {
            let Some(part) = part(&event) else { return };
            under.set(Some(block(part)));
            let Some((left, top, mut dragged)) = pressed.get() else { return };
            let (across, down) = (f64::from(event.client_x()), f64::from(event.client_y()));
            dragged |= (across - left).hypot(down - top) > DRAG_THRESHOLD;
            pressed.set(Some((left, top, dragged)));
            if dragged {
                let at = place(part);
                actor.matrix(move |matrix| matrix.centre(at));
            }
        })
    };
    let onpointerup = {
        let pressed = pressed.clone();
        let across = matrix.overview.result().map_or(0, |map| map.size.1);
        actor.on(move |actor, event: PointerEvent| {
            let Some((_, _, false)) = pressed.take() else { return };
            let Some(part) = part(&event) else { return };
            let (row, column) = block(part);
            let (row, column) = if turned { (column, row) } else { (row, column) };
            let otherwise = place(part);
            // A click goes to the element with the largest magnitude in the block.
            actor.matrix(move |matrix| {
                let at = matrix.peak_of_block(row * across + column).unwrap_or(otherwise);
                matrix.centre(at);
            });
        })
    };
    let onpointerleave = {
        let under = under.clone();
        Callback::from(move |_: PointerEvent| under.set(None))
    };
    let (rows, columns) = map.matrix;
    let span = |size: usize, block: u64| size as f64 * block as f64;
    let (tall, broad) = (span(map.size.0, map.block.0), span(map.size.1, map.block.1));
    let lens = {
        let (window, lens) = (matrix.window(), matrix.lens);
        let (window, lens) = match turned {
            true => ((window.1, window.0), (lens.1, lens.0)),
            false => (window, lens),
        };
        let percent = |part: u64, of: f64| part as f64 / of * 100.0;
        format!(
            "left:{:.3}%;top:{:.3}%;width:{:.3}%;height:{:.3}%",
            percent(lens.1, broad),
            percent(lens.0, tall),
            percent(window.1, broad),
            percent(window.0, tall)
        )
    };
    let square = square(map.size, room, small);
    let style = match square {
        Some(cell) => format!(
            "--high:{:.1}px;--wide:{:.1}px;--room:{room}px",
            map.size.0 as f64 * cell + 2.0,
            map.size.1 as f64 * cell + 2.0
        ),
        // A matrix of few rows is drawn as a strip, not stretched.
        None => format!("--rows:{}", map.size.0),
    };
    // Row and column numbers are those of the tensor, even if a slice of it is shown.
    let turn = |(one, other): RowColumn| if turned { (other, one) } else { (one, other) };
    let row_of = |row: u64| turn(matrix.indices(turn((row, 0)))).0;
    let column_of = |column: u64| turn(matrix.indices(turn((0, column)))).1;
    let read = (*under).map_or_else(
        || map.text_of_slice(row_of, column_of),
        |(row, column)| block_text(map, (row, column), (&row_of, &column_of)),
    );
    html! {
        <div class={classes(&["overview", when(square.is_some(), "square")])} {style} ref={outer}>
            <span></span>
            <div class="profile" aria-hidden="true">{ profile(&map.columns, matrix.profile, false) }</div>
            <span></span>
            <svg class="axis rows" aria-hidden="true">
                { for ticks(rows, high, 36.0).into_iter().map(|row| html! {
                    <text x="38" y={format!("{:.1}", row as f64 / tall * high + 9.0)} text-anchor="end">{ row_of(row) }</text>
                }) }
            </svg>
            <div class="map" id="overview" ref={node} role="group" tabindex="0" aria-label={format!("Heatmap: {}", map.text_of_slice(row_of, column_of))}
                {onpointerdown} {onpointermove} {onpointerup} {onpointerleave}>
                <Canvas cells={(*cells).clone()} />
                <i class="lens" style={lens}></i>
            </div>
            <div class="profile side" aria-hidden="true">{ profile(&map.rows, matrix.profile, true) }</div>
            <span></span>
            <svg class="axis columns" aria-hidden="true">
                { for ticks(columns, wide, 70.0).into_iter().map(|column| html! {
                    <text x={format!("{:.1}", column as f64 / broad * wide)} y="11">{ column_of(column) }</text>
                }) }
            </svg>
            <span></span>
            <span></span>
            <p class="read m dim">{ read }</p>
        </div>
    }
}

/// Returns the size in pixels of a square cell if the matrix is small enough for square cells. A
/// larger matrix fills the available space.
fn square(size: (usize, usize), room: f64, small: bool) -> Option<f64> {
    let window = web_sys::window().and_then(|window| window.inner_height().ok()?.as_f64());
    let high = match small {
        true => SMALL_HEIGHT,
        false => (window.unwrap_or(0.0) - MARGIN_HEIGHT).max(MIN_HEIGHT),
    };
    cell_of(size, (high, room - MARGIN_WIDTH))
}

fn cell_of((rows, columns): (usize, usize), (high, wide): (f64, f64)) -> Option<f64> {
    let cell = (high / rows.max(1) as f64).min(wide / columns.max(1) as f64).floor();
    (cell >= SQUARE.0).then_some(cell.min(SQUARE.1))
}

/// Maps a row or column of the heatmap to its number in the tensor.
type NumberOf<'a> = &'a dyn Fn(u64) -> u64;

/// Describes a block in words.
fn block_text(
    map: &BlockMap,
    (row, column): (usize, usize),
    (row_of, column_of): (NumberOf<'_>, NumberOf<'_>),
) -> String {
    let at = row * map.size.1 + column;
    let range = |number: NumberOf<'_>, at: usize, block: u64, of: u64| {
        let start = at as u64 * block;
        let end = (start + block).min(of).saturating_sub(1);
        let (first, last) = (number(start), number(end));
        if start == end { first.to_string() } else { format!("{first}\u{2013}{last}") }
    };
    let rows = range(row_of, row, map.block.0, map.matrix.0);
    let columns = range(column_of, column, map.block.1, map.matrix.1);
    let Some(marks) = map.marks.get(at).filter(|marks| **marks != 0) else {
        return format!("rows {rows}, columns {columns}: not read yet");
    };
    let largest = map.largest.get(at).copied().filter(|value| value.is_finite());
    let mean = map.mean.get(at).copied().filter(|value| value.is_finite());
    let mut text = format!("rows {rows}, columns {columns}");
    if let Some(value) = largest {
        text += &format!(": largest {}", number(value));
    }
    if let Some(mean) = mean {
        text += &format!(" \u{b7} mean |x| {}", number(mean));
    }
    for (mark, what) in [(NAN, "NaN"), (INFINITE, "Inf")] {
        if marks & mark != 0 {
            text += &format!(" \u{b7} has {what}");
        }
    }
    text
}

/// Renders the profile of rows or columns: largest magnitudes or norms, growing outwards from the
/// map.
fn profile(lines: &[MatrixLine], of: Profile, side: bool) -> Html {
    let values: Vec<f64> = lines.iter().map(|line| of.of(line)).collect();
    let most = values.iter().copied().fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let count = values.len().max(1);
    let mut path = String::new();
    for (at, value) in values.iter().enumerate() {
        let out = value / most * 24.0;
        let (from, to) = (at, at + 1);
        path += &match side {
            true => format!("L{out:.2} {from}L{out:.2} {to}"),
            false => format!("L{from} {:.2}L{to} {:.2}", 26.0 - out, 26.0 - out),
        };
    }
    let (view, path) = match side {
        true => (format!("0 0 26 {count}"), format!("M0 0{path}L0 {count}z")),
        false => (format!("0 0 {count} 26"), format!("M0 26{path}L{count} 26z")),
    };
    html! { <svg viewBox={view} preserveAspectRatio="none"><path d={path} vector-effect="non-scaling-stroke" /></svg> }
}

/// Renders the colour scale with its numbers.
pub(super) fn legend(colours: &Colours) -> Html {
    let stops: Vec<String> = (0..=16)
        .map(|at| {
            let part = f64::from(at) / 16.0;
            let part = if colours.is_signed() { part * 2.0 - 1.0 } else { part };
            let [red, green, blue] = colours.at(part);
            format!("rgb({red} {green} {blue})")
        })
        .collect();
    let style = format!("background:linear-gradient(90deg,{})", stops.join(","));
    let most = number(colours.magnitude(1.0));
    let (low, middle) = match colours.is_signed() {
        true => (fmt::minus(&format!("-{most}")), "0".to_owned()),
        false => (number(colours.magnitude(0.0)), number(colours.magnitude(0.5))),
    };
    html! {
        <div class="legend">
            <div class="gradient" {style} aria-hidden="true"></div>
            <div class="ends m"><span>{ low }</span><span>{ middle }</span><span>{ most }</span></div>
        </div>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_matrices_have_square_cells() {
        let room = (376.0, 1000.0);
        assert_eq!(cell_of((8, 3), room), Some(28.0));
        assert_eq!(cell_of((24, 40), room), Some(15.0));
        assert_eq!(cell_of((1, 120), room), Some(8.0));
        assert_eq!(cell_of((96, 128), room), None);
        assert_eq!(cell_of((4, 344), room), None);
        assert_eq!(cell_of((8, 3), (240.0, -80.0)), None, "before it was measured");
    }
}
