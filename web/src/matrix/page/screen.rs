//! The screen of the expanded inspector.

use std::rc::Rc;

use statelens_values::picture::Colours;
use yew::prelude::*;

use super::bar::Bar;
use super::grid::Grid;
use super::heatmap::{Heatmap, legend};
use super::ranked;
use super::side::Side;
use crate::export::page::sliced_key;
use crate::inspector::message::RowDetails;
use crate::matrix::message::ExportedFile;
use crate::matrix::state::{ByIdentity, MatrixState};
use crate::page::error::short_error;
use crate::page::hooks::{has_touch, use_media};
use crate::page::marks::{Copy, cap, dtype, logo, wrapped_key};
use crate::page::model::actor::Actor;
use crate::page::running::{bytes_done, running_line};
use crate::protocol::job::JobKind;
use crate::state::fmt;
use crate::state::task::Task;
use crate::state::work::OpenWork;

/// Properties of the expanded inspector.
#[derive(Properties, PartialEq)]
pub struct MatrixScreenProps {
    /// The open checkpoint.
    pub work: OpenWork,
    /// The state of the heatmap.
    pub matrix: MatrixState,
    /// Details of the row.
    pub inspected: Option<Rc<RowDetails>>,
    /// Progress of saving its values to a file.
    pub export: Task<ExportedFile>,
    /// The note on where bytes go.
    pub privacy: Html,
}

/// The expanded inspector.
#[component]
pub fn MatrixScreen(props: &MatrixScreenProps) -> Html {
    let actor = use_context::<Actor>();
    let dark = use_media("(prefers-color-scheme: dark)");
    let matrix = &props.matrix;
    let map = use_memo((matrix.map(), matrix.transposed), |(map, turned)| {
        map.clone().map(|map| if *turned { ByIdentity(Rc::new(map.0.transposed())) } else { map })
    });
    let colours = use_memo(
        ((*map).clone(), matrix.show, matrix.scaling, dark),
        |(map, show, scaling, dark)| {
            map.as_ref().map(|map| Rc::new(Colours::new(&map.0, *show, *scaling, *dark)))
        },
    );
    let Some(actor) = actor else { return html! {} };
    let Some(row) = props.work.rows.get(matrix.selection.row as usize) else { return html! {} };
    let back = actor.on(move |actor, _: MouseEvent| actor.expand(false));
    let title = AttrValue::from(sliced_key(&row.key, &matrix.selection.slice));
    let axes = axes(matrix);
    html! {
        <main class="app matrix" id="matrix">
            <header class="top">
                <span class="only-l">{ logo() }</span>
                <button class="btn quiet" id="matrix-back" onclick={back}>{ format!("\u{2039} {} ", props.work.opened.name) }<span class="only-l">{ cap("Esc") }</span></button>
                <span class="vr only-l"></span>
                <h1 class="matrix-key">{ wrapped_key(&row.key) }</h1>
                <Copy text={row.key.clone()} label="key" />
                <span class="grow"></span>
                { dtype(&row.dtype) }
                <span class="m">{ fmt::shape(&row.shape) }</span>
                <span class="m dim only-l">{ fmt::bytes(row.bytes) }</span>
            </header>
            <Bar matrix={matrix.clone()} layer={props.work.layer()} />
            <div class="exp">
                <div class="main">
                    <div class="hd"><h2>{ if matrix.selection.slice.is_empty() { "Whole tensor".to_owned() } else { format!("[{}]", matrix.selection.slice) } }</h2>
                        <span class="lab">{ description(matrix, map.as_ref()) }</span>
                        { progress(&actor, matrix) }
                        <span class="grow"></span>
                        if let Some(colours) = &*colours { { legend(colours) } }</div>
                    { matrix.error().map(|error| short_error(error)) }
                    if let (Some(map), Some(colours)) = (&*map, &*colours) {
                        <Heatmap matrix={matrix.clone()} map={map.clone()} colours={colours.clone()} />
                    } else if matrix.error().is_none() {
                        <div class="overview waiting" role="status">{ "Reading\u{2026}" }</div>
                    }
                    <Grid matrix={matrix.clone()} {dark} bytes={row.bytes} />
                    { ranked::tiles(&actor, matrix, dark) }
                </div>
                <Side tensor={row.key.clone()} matrix={matrix.clone()} map={(*map).clone()} inspected={props.inspected.clone()} {title} {axes} dtype={row.dtype.clone()} bytes={row.bytes} export={props.export.clone()} />
            </div>
            <footer class="status">
                if let Some(cells) = &matrix.cells { <span class="opt dim">{ format!("window read in {}", fmt::seconds(cells.0.millis)) }</span> }
                <span class="grow"></span>
                { props.privacy.clone() }
                <span class="opt dim">{ "shortcuts " }{ cap("?") }</span>
            </footer>
        </main>
    }
}

/// Returns the names of rows and columns.
fn axes(matrix: &MatrixState) -> (AttrValue, AttrValue) {
    let view = &matrix.view;
    let (rows, columns) = match (view.rows.zip(view.columns), view.shape.len()) {
        (None, _) => ("rows of elements".into(), "elements".into()),
        (Some((rows, columns)), 3..) => {
            (format!("dim {rows}").into(), format!("dim {columns}").into())
        }
        _ => ("rows".into(), "columns".into()),
    };
    if matrix.transposed { (columns, rows) } else { (rows, columns) }
}

fn description(
    matrix: &MatrixState,
    map: &Option<ByIdentity<statelens_values::picture::BlockMap>>,
) -> String {
    let Some(map) = map else { return String::new() };
    let of = match map.0.block {
        (1, 1) => "each cell is a value".to_owned(),
        (high, wide) => {
            let description = match matrix.show {
                statelens_values::picture::Show::Value => "value of largest magnitude",
                statelens_values::picture::Show::Magnitude => "largest |x|",
                statelens_values::picture::Show::Mean => "mean |x|",
            };
            format!("each cell is the {description} of a {high} \u{d7} {wide} block")
        }
    };
    let act = if has_touch() { "tap or drag" } else { "click, drag, or use the arrow keys" };
    format!("{of} \u{b7} {act}")
}

fn progress(actor: &Actor, matrix: &MatrixState) -> Html {
    let (done, total) = matrix.read;
    let running = matrix.overview.is_running();
    if matrix.error().is_some() || total == 0 || !running && done >= total {
        return html! {};
    }
    let progress = bytes_done(done, total);
    if !running {
        return html! { <span class="m dim" id="matrix-stopped">{ format!("stopped after {progress}") }</span> };
    }

    let onclick = actor.on(move |actor, _: MouseEvent| actor.stop(JobKind::Overview));
    running_line("matrix-stop", Some(("Reading the whole tensor", matrix.read)), progress, onclick)
}
