//! The picture of the pieces of a tensor, and the line about the files or ranks of a checkpoint.

use std::rc::Rc;

use statelens_checkpoint::visible;
use web_sys::File;
use yew::prelude::*;

use crate::inspector::message::RowDetails;
use crate::page::choice::choice;
use crate::page::error::short_error;
use crate::page::hooks::use_size;
use crate::page::marks::{Copy, HATCHED};
use crate::page::model::PageModel;
use crate::page::model::actor::Actor;
use crate::page::model::tasks::TaskSlot;
use crate::pieces::message::{
    MISSING, PieceRequest, PieceStatistics, StoragePlaces, TensorPiece, TensorPieces,
};
use crate::pieces::state::{PieceCell, PiecePicture, color, slice};
use crate::protocol::task::TaskRequest;
use crate::rows::Row;
use crate::state::dtype::{DTypeFamily, family};
use crate::state::fmt;
use crate::state::task::{Task, TaskState};
use crate::values::model::ValuesPanel;
use crate::values::state::summary_facts;

/// The most places that a legend names.
const MAX_NAMED: usize = 16;

impl TaskSlot for PieceStatistics {
    fn task(model: &mut PageModel) -> Option<&mut dyn TaskState> {
        Some(&mut model.values_panel.piece.as_mut()?.1)
    }

    fn store(self: Box<Self>, model: &mut PageModel, done: bool, _: Option<File>) {
        if let Some((request, task)) = &mut model.values_panel.piece
            && *request == self.request
        {
            task.set(self, done);
        }
    }
}

impl Actor {
    /// Selects a piece, and starts reading its values.
    fn select_piece(&self, request: PieceRequest) {
        self.start(TaskRequest::PieceStats(request));
        self.values_panel(move |panel| panel.piece = Some((request, Task::started())));
    }
}

/// Renders the line about a joined checkpoint, and the control for the colours of the byte map.
pub fn map_line(places: &StoragePlaces, by_place: bool, onchange: Callback<bool>) -> Html {
    if places.line.is_empty() && places.names.is_empty() {
        return html! {};
    }
    let word = if places.are_ranks { "rank" } else { "file" };
    let (line, missing) = match (places.incomplete, places.line.rsplit_once(", ")) {
        (true, Some((line, missing))) => (format!("{line}, "), missing),
        _ => (places.line.clone(), ""),
    };
    html! {
        <div class="mapline">
            <span id="joined">{ line }<b class="w-warn">{ missing }</b></span>
            if !places.names.is_empty() {
                <span class="mapcolors">
                    if by_place { { legend(places, None) } }
                    <span class="lab only-l">{ "colour by" }</span>
                    { choice(true, "Colours of the map", &[(true, word), (false, "dtype")], by_place, onchange) }
                </span>
            }
        </div>
    }
}

/// Renders the colours of places with their names; with `counts`, also the number of pieces in each,
/// and only places with any.
fn legend(places: &StoragePlaces, counts: Option<&[u64]>) -> Html {
    let all = places.names.len();
    let chip = |at: usize| html! { <i style={format!("--c:{}", color(at as u32, all))}></i> };
    if all > MAX_NAMED || counts.is_none() {
        let (first, last) = (places.names.first(), places.names.last());
        let step = all.div_ceil(MAX_NAMED);
        return html! {
            <span class="ramp">
                <span class="m">{ first.map(|name| visible(name)) }</span>
                <span aria-hidden="true">{ for (0..all).step_by(step).map(chip) }</span>
                <span class="m">{ last.map(|name| visible(name.strip_prefix("rank ").unwrap_or(name))) }</span>
            </span>
        };
    }
    let counts = counts.unwrap_or_default();
    let named = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    html! {
        <ul class="placelist" aria-label="Pieces by place">
            { for named.map(|(at, count)| html! {
                <li>{ chip(at) }<span class="m">{ visible(&places.names[at]) }</span>
                    if *count > 1 { <span class="dim">{ format!("\u{d7}{}", fmt::exact(*count)) }</span> }</li>
            }) }
        </ul>
    }
}

#[derive(Properties, PartialEq)]
pub struct PiecesProps {
    /// The row of the tensor, and its details, which have pieces.
    pub row: Row,
    pub inspected: Rc<RowDetails>,
    /// The places of the checkpoint.
    pub places: Rc<StoragePlaces>,
    pub values_panel: ValuesPanel,
}

/// The section with the picture.
#[component]
pub fn PiecesSection(props: &PiecesProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let node = use_node_ref();
    let (width, _) = use_size(&node);
    let pointed = use_state(|| None::<u32>);
    let (row, shape) = (props.inspected.row, &props.row.shape);
    let inspected = props.inspected.clone();
    let picture = use_memo((row, width as u32, inspected.clone()), |(_, width, inspected)| {
        let pieces = inspected.pieces.as_ref().map_or(&[][..], |all| &all.pieces);
        PiecePicture::new(&props.row.shape, pieces, f64::from((*width).max(120)))
    });
    let Some(all) = &inspected.pieces else { return html! {} };
    let panel = props.values_panel.piece.as_ref().filter(|(request, _)| request.row == row);
    let selected = panel.map(|(request, _)| request.piece);
    let last = all.pieces.len().saturating_sub(1) as u32;
    let select = {
        let each = picture.each.max(1) as i64;
        actor.on(move |actor, by: i64| {
            let at = selected.map_or(0, |at| i64::from(at).saturating_add(by * each));
            let piece = at.clamp(0, i64::from(last)) as u32;
            actor.select_piece(PieceRequest { row, piece });
        })
    };
    let unpoint = pointed.clone();
    let onkeydown = Callback::from(move |event: KeyboardEvent| {
        let by = match event.key().as_str() {
            "ArrowRight" | "ArrowDown" => 1,
            "ArrowLeft" | "ArrowUp" => -1,
            "Home" => i64::from(i32::MIN),
            "End" => i64::from(i32::MAX),
            _ => return,
        };
        event.prevent_default();
        event.stop_propagation();
        // The pointer may rest on another piece.
        unpoint.set(None);
        select.emit(by);
    });
    let at = {
        let picture = picture.clone();
        move |event: &MouseEvent| {
            picture.at(f64::from(event.offset_x()), f64::from(event.offset_y()))
        }
    };
    let onclick = {
        let at = at.clone();
        actor.on(move |actor, event: MouseEvent| {
            if let Some(piece) = at(&event) {
                actor.select_piece(PieceRequest { row, piece });
            }
        })
    };
    let onmousemove = {
        let pointed = pointed.clone();
        Callback::from(move |event: MouseEvent| pointed.set(at(&event)))
    };
    let onmouseleave = {
        let pointed = pointed.clone();
        Callback::from(move |_: MouseEvent| pointed.set(None))
    };
    let shown = pointed.or(selected).and_then(|at| Some((at, all.pieces.get(at as usize)?)));
    let description = selected.and_then(|at| all.pieces.get(at as usize)).map(|piece| {
        format!("{}, [{}]", place_name(&props.places, piece.place), slice(piece, shape))
    });
    html! {
        <section id="pieces" data-pieces={all.pieces.len().to_string()}>
            <div class="hd"><h3>{ "Pieces" }</h3><span class="lab">{ heading(&picture, all, shape) }</span></div>
            <div class="piecemap" ref={node} role="slider" tabindex="0" aria-label={format!("Pieces of {}", visible(&props.row.key))} aria-valuemin="1" aria-valuemax={(last + 1).to_string()}
                aria-valuenow={(selected.unwrap_or(0) + 1).to_string()} aria-valuetext={description.unwrap_or_else(|| "no piece selected".into())} {onkeydown}>
                if width > 0.0 {
                    <svg width={format!("{:.0}", picture.width)} height={format!("{:.0}", picture.height + 1.0)} aria-hidden="true" {onclick} {onmousemove} {onmouseleave}>
                        { cells(&picture, all, &props.places) }
                        if let Some(cell) = selected.and_then(|at| picture.cell(at)) { { frame(cell, "on") } }
                        if let Some(cell) = pointed.and_then(|at| picture.cell(at)) { { frame(cell, "at") } }
                    </svg>
                }
            </div>
            { legend(&props.places, Some(&counts(all, props.places.names.len()))) }
            if !all.without.is_empty() {
                <p class="dim" id="without">{ without(all, &props.places) }</p>
            }
            if let Some((at, piece)) = shown { { facts(props, all, (at, piece)) } }
            else { <p class="dim">{ "Click a piece for its statistics." }</p> }
            if let Some((_, task)) = panel.filter(|(request, _)| shown.is_some_and(|(at, _)| at == request.piece)) {
                { statistics(task, &props.row.dtype) }
            }
        </section>
    }
}

fn heading(picture: &PiecePicture, all: &TensorPieces, shape: &[u64]) -> String {
    let count = fmt::plural(all.pieces.len() as u64, "piece");
    let dims: Vec<String> = picture.cut.iter().map(usize::to_string).collect();
    let cut = match (dims.as_slice(), all.pieces.first()) {
        ([], Some(piece)) if piece.at.len() != shape.len() => ", ranges of elements".to_owned(),
        ([], _) => String::new(),
        ([one], _) => format!(" along dim {one}"),
        (more, _) => format!(" along dims {}", more.join(", ")),
    };
    let order = match (picture.to_scale, picture.each) {
        (true, _) => String::new(),
        (false, 1) => ", in order".to_owned(),
        (false, each) => format!(", {each} per square, in order"),
    };
    format!("{count}{cut}{order}")
}

fn place_name(places: &StoragePlaces, place: u32) -> String {
    places.names.get(place as usize).map_or_else(|| "missing".to_owned(), |name| visible(name))
}

/// Returns the number of pieces in each place.
fn counts(all: &TensorPieces, places: usize) -> Vec<u64> {
    let mut counts = vec![0; places];
    for place in all.pieces.iter().flat_map(|piece| piece.copies.iter().chain([&piece.place])) {
        if let Some(count) = counts.get_mut(*place as usize) {
            *count += 1;
        }
    }
    counts
}

fn without(all: &TensorPieces, places: &StoragePlaces) -> String {
    let names: Vec<String> = all
        .without
        .iter()
        .map(|place| place_name(places, *place).trim_start_matches("rank ").to_owned())
        .collect();
    let (word, verb) = if names.len() == 1 { ("Rank", "holds") } else { ("Ranks", "hold") };
    format!("{word} {} {verb} no part of it.", statelens_checkpoint::listed(&names, 8))
}

/// Renders the cells, as a path for each place.
fn cells(picture: &PiecePicture, all: &TensorPieces, places: &StoragePlaces) -> Html {
    let count = places.names.len();
    let mut paths = vec![String::new(); count + 1];
    let (mut labels, mut copies) = (Vec::new(), String::new());
    for cell in &picture.cells {
        let PieceCell { x, y, width, height, .. } = *cell;
        let Some(piece) = all.pieces.get(cell.piece as usize) else { continue };
        let place = (piece.place as usize).min(count);
        // A hairline between the pieces.
        let (w, h) = ((width - 1.0).max(1.0), (height - 1.0).max(1.0));
        paths[place].push_str(&format!("M{x:.1} {y:.1}h{w:.1}v{h:.1}h-{w:.1}z"));
        if !piece.copies.is_empty() && w > 4.0 {
            let corner = (w.min(h) / 2.0).min(8.0);
            let right = x + w;
            copies.push_str(&format!("M{right:.1} {y:.1}v{corner:.1}l-{corner:.1} -{corner:.1}z"));
        }
        let name = places.names.get(place).and_then(|name| name.strip_prefix("rank "));
        if let Some(name) = name.filter(|name| h >= 14.0 && w > name.len() as f64 * 7.0 + 6.0) {
            labels.push((x + w / 2.0, y + h / 2.0 + 4.0, name));
        }
    }
    html! {
        <>
            { for paths.iter().enumerate().filter(|(_, path)| !path.is_empty()).map(|(at, path)| match at < count {
                true => html! { <path d={path.clone()} fill={color(at as u32, count)} /> },
                false => html! { <path class="gone" d={path.clone()} fill={HATCHED} /> },
            }) }
            <path class="copies" d={copies} />
            { for labels.iter().map(|(x, y, name)| html! { <text x={format!("{x:.1}")} y={format!("{y:.1}")} text-anchor="middle">{ *name }</text> }) }
        </>
    }
}

fn frame(cell: &PieceCell, class: &'static str) -> Html {
    html! {
        <rect class={class} x={format!("{:.1}", cell.x)} y={format!("{:.1}", cell.y)} width={format!("{:.1}", (cell.width - 1.0).max(2.0))} height={format!("{:.1}", (cell.height - 1.0).max(2.0))} />
    }
}

/// Renders the place of a piece.
fn facts(props: &PiecesProps, all: &TensorPieces, (at, piece): (u32, &TensorPiece)) -> Html {
    let places = &props.places;
    let part = slice(piece, &props.row.shape);
    let is_flat = piece.at.len() != props.row.shape.len();
    let file = all.files.get(piece.file as usize).cloned().unwrap_or_default();
    let others: Vec<String> = piece.copies.iter().map(|place| place_name(places, *place)).collect();
    let is_missing = piece.place == MISSING;
    html! {
        <dl class="kv" id="piece" data-piece={at.to_string()}>
            <dt>{ if is_missing { html! { <b class="w-warn">{ "missing" }</b> } } else { html! { { place_name(places, piece.place) } } } }</dt>
            <dd class="m">{ if is_flat { format!("elements {part}") } else { format!("[{part}]") } }</dd>
            <dt>{ "shape" }</dt><dd>{ fmt::shape(&piece.shape) }</dd>
            if !is_missing {
                <dt>{ "file" }</dt><dd class="wrap" title={visible(&file)}><span class="m">{ visible(file.rsplit('/').next().unwrap_or_default()) }</span> <Copy text={file.clone()} label="file" /></dd>
                <dt>{ "at byte" }</dt><dd>{ fmt::exact(piece.offset) }</dd>
                <dt>{ "bytes" }</dt><dd>{ fmt::exact(piece.bytes) }</dd>
            }
            if !others.is_empty() { <dt>{ "copies" }</dt><dd>{ statelens_checkpoint::listed(&others, 8) }</dd> }
        </dl>
    }
}

fn statistics(task: &Task<PieceStatistics>, dtype: &str) -> Html {
    match task {
        Task::Done(found) => html! {
            <dl class="kv" id="piece-statistics">
                { for summary_facts(&found.statistics, family(dtype) == DTypeFamily::Int).into_iter().map(|(label, value)| html! { <><dt>{ label }</dt><dd>{ value }</dd></> }) }
            </dl>
        },
        Task::Failed(error) => short_error(error),
        Task::Running(_) => html! { <p class="dim">{ "Reading its values\u{2026}" }</p> },
        Task::Idle => html! {},
    }
}
