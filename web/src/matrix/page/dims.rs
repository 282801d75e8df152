//! The choice of the dimensions to draw, and of the indices in the others.

use yew::prelude::*;

use crate::matrix::state::MatrixState;
use crate::page::marks::{chosen, typed};
use crate::page::model::actor::Actor;

/// Renders the choice of the dimensions for rows and columns if there are more than two, and the
/// indices in the others.
pub(super) fn dims(actor: &Actor, matrix: &MatrixState) -> Html {
    let view = &matrix.view;
    let others = (0..view.shape.len()).filter(|dim| !view.is_drawn(*dim));
    let drawn = view.rows.zip(view.columns).filter(|_| view.shape.len() > 2);
    let drawn = drawn.map(|(rows, columns)| match matrix.transposed {
        true => (columns, rows),
        false => (rows, columns),
    });
    html! {
        <>
            if let Some((rows, columns)) = drawn {
                { choice(actor, matrix, "rows", rows, columns) }
                { choice(actor, matrix, "columns", columns, rows) }
            }
            { for others.map(|dim| index(actor, matrix, dim)) }
        </>
    }
}

/// Renders the choice of the dimension for rows or columns. Choosing the one that the other axis
/// has swaps both.
fn choice(
    actor: &Actor,
    matrix: &MatrixState,
    name: &'static str,
    current: usize,
    other: usize,
) -> Html {
    let onchange = actor.on(move |actor, event: Event| {
        let Some(dim) = chosen(&event).and_then(|text| text.parse::<usize>().ok()) else { return };
        let other = if dim == other { current } else { other };
        let rows = if name == "rows" { dim } else { other };
        actor.matrix(move |matrix| {
            matrix.change_view(|view| view.draw(dim, other));
            matrix.transposed = Some(rows) == matrix.view.columns;
        });
    });
    html! {
        <label class="chip menu">{ name }
            <select {onchange} aria-label={format!("Dimension of {name}")} id={format!("matrix-dim-{name}")}>
                { for matrix.view.shape.iter().enumerate().map(|(dim, len)| html! {
                    <option value={dim.to_string()} selected={dim == current}>{ format!("dim {dim} \u{b7} {len}") }</option>
                }) }
            </select></label>
    }
}

/// Renders the index in a dimension that is not drawn, as a field and a slider.
fn index(actor: &Actor, matrix: &MatrixState, dim: usize) -> Html {
    let (at, count, index) = matrix.view.at(dim);
    let size = matrix.view.shape[dim];
    let onchange = actor.on(move |actor, event: Event| {
        let Some(Ok(index)) = typed(&event).map(|text| text.trim().parse::<u64>()) else {
            return;
        };
        actor.matrix(move |it| it.change_view(|view| view.set(dim, view.nearest(dim, index))));
    });
    let oninput = actor.on(move |actor, event: InputEvent| {
        let Some(Ok(at)) = typed(&event).map(|text| text.parse::<u64>()) else { return };
        actor.matrix(move |it| it.change_view(|view| view.set(dim, at)));
    });
    let (last, end) = (size.saturating_sub(1).to_string(), count.saturating_sub(1).to_string());
    html! {
        <span class="slice" role="group" aria-label={format!("Dimension {dim}")}>
            <span class="lab">{ format!("dim {dim}") }</span>
            <input class="num" type="number" min="0" max={last} value={index.to_string()} {onchange} aria-label={format!("Index of dimension {dim}, of {size}")} />
            <input type="range" min="0" max={end} value={at.to_string()} {oninput} aria-label={format!("Slider of dimension {dim}")} />
        </span>
    }
}
