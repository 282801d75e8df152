//! The rows of the matrix ranked by norm, and the kernels of a convolution as tiles.

use statelens_values::picture::of_value;
use yew::prelude::*;

use super::canvas::{Canvas, ColouredCells};
use crate::matrix::message::ranked::{NormRanking, RankedRequest};
use crate::matrix::state::MatrixState;
use crate::page::choice::choice;
use crate::page::error::short_error;
use crate::page::model::actor::Actor;
use crate::page::running::{percent, running_line};
use crate::protocol::job::JobKind;
use crate::protocol::task::TaskRequest;
use crate::state::fmt;
use crate::values::state::number;

/// Maximum number of values of a kernel, and minimum number of rows of a matrix that is ranked.
const KERNEL: u64 = 256;
const ROWS: u64 = 16;
/// Minimum size of a tile in pixels.
const TILE: u64 = 54;

impl Actor {
    fn rank(&self, matrix: &MatrixState, kernels: bool, from: u64, in_order: bool) {
        let selection = matrix.selection.clone();
        let request = RankedRequest { selection, kernels, from, in_order };
        self.start(TaskRequest::Rank(request));
        self.matrix(|it| it.ranked.start());
    }
}

/// Returns whether the last two dimensions are convolution kernels.
pub(super) fn has_kernels(matrix: &MatrixState) -> bool {
    matrix.view.shape.len() > 2
        && matrix.view.is_usual()
        && matrix.size.0.saturating_mul(matrix.size.1) <= KERNEL
}

fn progress(actor: &Actor, matrix: &MatrixState) -> Html {
    let Some(now) = matrix.ranked.now() else { return html! {} };
    let stop = actor.on(move |actor, _: MouseEvent| {
        actor.stop(JobKind::Rank);
        actor.matrix(|it| it.ranked.stop());
    });
    let bar = Some(("Ranking by norm", (now.done, now.total)));
    running_line("rank-stop", bar, format!("{} %", percent(now)), stop)
}

/// Renders the rows ranked by norm, next to the heatmap.
pub(super) fn rows(actor: &Actor, matrix: &MatrixState, bytes: u64) -> Html {
    if has_kernels(matrix) || matrix.view.rows.is_none() || matrix.size.0 < ROWS {
        return html! {};
    }
    let rank = {
        let matrix = matrix.clone();
        actor.on(move |actor, _: MouseEvent| actor.rank(&matrix, false, 0, false))
    };
    let found = matrix.ranked.result().filter(|ranked| !ranked.kernels);
    html! {
        <section id="ranked"><div class="hd"><h3>{ "Rows by norm" }</h3>{ progress(actor, matrix) }</div>
            { matrix.ranked.error().map(|error| short_error(error)) }
            if let Some(found) = found {
                { table(actor, matrix, found) }
            } else if !matrix.ranked.is_running() {
                <p><button class="btn" id="rank-rows" onclick={rank}>{ format!("Rank {} rows \u{b7} reads {}", fmt::exact(matrix.size.0), fmt::bytes(bytes)) }</button></p>
            }
        </section>
    }
}

fn table(actor: &Actor, matrix: &MatrixState, found: &NormRanking) -> Html {
    let columns = matrix.size.1;
    let part = |title: &'static str, lines: &[(u64, f64, f64)]| {
        html! {
            <>
                <thead><tr><th>{ title }</th><th>{ "norm" }</th><th>{ "max |x|" }</th></tr></thead>
                <tbody>{ for lines.iter().map(|&(row, norm, most)| {

                    let onclick = actor.on(move |actor, _: MouseEvent| actor.matrix(move |it| it.centre((row, columns / 2))));
                    html! { <tr><td><button class="textlink m" {onclick}>{ row }</button></td><td>{ number(norm) }</td><td>{ number(most) }</td></tr> }
                }) }</tbody>
            </>
        }
    };
    html! {
        <>
            <table class="outstanding">{ part("largest", &found.largest) }{ part("smallest", &found.smallest) }</table>
            <dl class="kv"><dt>{ "median norm" }</dt><dd>{ number(found.median) }</dd>
                <dt>{ "all zero" }</dt><dd>{ fmt::exact(found.zero) }</dd>
                <dt>{ "equal to an earlier one" }</dt><dd>{ fmt::exact(found.copied) }</dd></dl>
        </>
    }
}

/// Renders the kernels as tiles, below the heatmap.
pub(super) fn tiles(actor: &Actor, matrix: &MatrixState, dark: bool) -> Html {
    if !has_kernels(matrix) {
        return html! {};
    }
    let found = matrix.ranked.result().filter(|ranked| ranked.kernels);
    let request = |from: u64, in_order: bool| {
        let matrix = matrix.clone();
        actor.on(move |actor, _: MouseEvent| actor.rank(&matrix, true, from, in_order))
    };
    let in_order = found.is_some_and(|found| found.in_order);
    let order = {
        let matrix = matrix.clone();
        actor.on(move |actor, in_order: bool| actor.rank(&matrix, true, 0, in_order))
    };
    let shape = &matrix.view.shape;
    let leading = &shape[..shape.len() - 2];
    let all: u64 = leading.iter().product();
    html! {
        <section class="kernels" id="kernels" aria-label="Kernels">
            <div class="hd"><h3>{ "Kernels" }</h3>
                <span class="lab">{ format!("{} of {} \u{d7} {}", fmt::exact(all), matrix.size.0, matrix.size.1) }</span>
                { progress(actor, matrix) }<span class="grow"></span>
                if found.is_some() {
                    { choice(true, "Order", &[(false, "largest norm first"), (true, "in order")], in_order, order) }
                }</div>
            { matrix.ranked.error().map(|error| short_error(error)) }
            if let Some(found) = found {
                <ul class="tiles">{ for drawn(actor, matrix, found, dark) }</ul>
                <div class="pager"><span class="step">
                    <button aria-label="Earlier kernels" disabled={found.from == 0} onclick={request(found.from.saturating_sub(48), in_order)}>{ "\u{2039}" }</button>
                    <span>{ format!("{}\u{2013}{}", fmt::exact(found.from + 1), fmt::exact(found.from + found.largest.len() as u64)) }</span>
                    <button aria-label="Later kernels" disabled={found.from + found.largest.len() as u64 >= found.count} onclick={request(found.from + 48, in_order)}>{ "\u{203a}" }</button>
                    </span><span class="lab">{ format!("of {} \u{b7} {} all zero \u{b7} {} equal to an earlier one", fmt::exact(found.count), fmt::exact(found.zero), fmt::exact(found.copied)) }</span></div>
            } else if !matrix.ranked.is_running() {
                <p><button class="btn" id="show-kernels" onclick={request(0, false)}>{ "Show kernels as tiles" }</button></p>
            }
        </section>
    }
}

fn drawn(actor: &Actor, matrix: &MatrixState, found: &NormRanking, dark: bool) -> Vec<Html> {
    let (high, wide) = found.size;
    let each = (high * wide).max(1) as usize;
    let shape = &matrix.view.shape;
    let leading = &shape[..shape.len() - 2];
    // All tiles share one colour scale.
    let most = found.values.iter().copied().filter(|value| value.is_finite());
    let limit = most.map(f64::abs).fold(0.0, f64::max);
    let scale = TILE.div_ceil(wide.max(high).max(1)).max(2);
    let style = format!("--w:{}px;--h:{}px", wide * scale, high * scale);
    let kernels = found.largest.iter().zip(found.values.chunks(each));
    kernels
        .map(|(&(at, norm, largest), values)| {
            let colour = |value: &f64| {
                value.is_finite().then(|| of_value(*value, limit, matrix.scaling, dark))
            };
            let cells = ColouredCells { width: wide as usize, colours: values.iter().map(colour).collect() };
            let index = statelens_values::index(leading, at);
            let name = fmt::shape(&index);
            let selected = index == matrix.view.leading();

            let onclick = actor.on(move |actor, _: MouseEvent| {
                let index = index.clone();
                actor.matrix(move |it| it.change_view(|view| view.lead(&index)));
            });
            let label = format!("{name}: norm {}, largest magnitude {}", number(norm), number(largest));
            html! {
                <li key={at}><button {onclick} title={label.clone()} aria-label={label} aria-current={selected.then_some("true")}>
                    <span class="tile" style={style.clone()}><Canvas {cells} /></span>
                    <span class="m">{ name }</span><span class="m dim">{ number(norm) }</span></button></li>
            }
        })
        .collect()
}
