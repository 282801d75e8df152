//! The screen of the expanded inspector.

use std::rc::Rc;

use statelens_inspect::picture::Colours;
use yew::prelude::*;

use super::bar::Bar;
use super::grid::Grid;
use super::overview::{Overview, legend};
use super::ranked;
use super::side::Side;
use crate::page::hooks::{touches, use_media};
use crate::page::marks::{Copy, cap, dtype, logo, wrapped_key};
use crate::page::model::actor::Actor;
use crate::page::taking::sliced_key;
use crate::protocol::ToWorker;
use crate::protocol::inspected::Inspected;
use crate::protocol::looking::LookingRequest;
use crate::state::fmt;
use crate::state::instrument::Taking;
use crate::state::looking::{ByIdentity, Looking};
use crate::state::work::OpenWork;

/// Properties of the expanded inspector.
#[derive(Properties, PartialEq)]
pub struct ExpandedProps {
    /// The open checkpoint.
    pub work: OpenWork,
    /// The state of the heatmap.
    pub looking: Looking,
    /// Details of the row.
    pub inspected: Option<Rc<Inspected>>,
    /// Progress of saving its values to a file.
    pub taking: Taking,
    /// The note on where bytes go.
    pub privacy: Html,
}

/// The expanded inspector.
#[component]
pub fn Expanded(props: &ExpandedProps) -> Html {
    let actor = use_context::<Actor>();
    let dark = use_media("(prefers-color-scheme: dark)");
    let looking = &props.looking;
    let map = use_memo((looking.map.clone(), looking.transposed), |(map, turned)| {
        map.clone().map(|map| if *turned { ByIdentity(Rc::new(map.0.transposed())) } else { map })
    });
    let colours = use_memo(
        ((*map).clone(), looking.show, looking.scaling, dark),
        |(map, show, scaling, dark)| {
            map.as_ref().map(|map| Rc::new(Colours::new(&map.0, *show, *scaling, *dark)))
        },
    );
    let Some(actor) = actor else { return html! {} };
    let Some(row) = props.work.rows.get(looking.frame.row as usize) else { return html! {} };
    let back = {
        let actor = actor.clone();
        Callback::from(move |_: MouseEvent| actor.expand(false))
    };
    let title = AttrValue::from(sliced_key(&row.key, &looking.frame.slice));
    let axes = axes(looking);
    html! {
        <main class="app look" id="look">
            <header class="top">
                <span class="only-l">{ logo() }</span>
                <button class="btn quiet" id="look-back" onclick={back}>{ format!("\u{2039} {} ", props.work.opened.name) }<span class="only-l">{ cap("Esc") }</span></button>
                <span class="vr only-l"></span>
                <h1 class="lookkey">{ wrapped_key(&row.key) }</h1>
                <Copy text={row.key.clone()} what="key" />
                <span class="grow"></span>
                { dtype(&row.dtype) }
                <span class="m">{ fmt::shape(&row.shape) }</span>
                <span class="m dim only-l">{ fmt::bytes(row.bytes) }</span>
            </header>
            <Bar looking={looking.clone()} layer={props.work.layer()} />
            <div class="exp">
                <div class="main">
                    <div class="hd"><h2>{ if looking.frame.slice.is_empty() { "Whole tensor".to_owned() } else { format!("[{}]", looking.frame.slice) } }</h2>
                        <span class="lab">{ what(looking, map.as_ref()) }</span>
                        { progress(&actor, looking) }
                        <span class="grow"></span>
                        if let Some(colours) = &*colours { { legend(colours) } }</div>
                    if let Some(error) = &looking.failed {
                        <p class="w-warn">{ &error.title }</p><p class="dim">{ &error.text }</p>
                    }
                    if let (Some(map), Some(colours)) = (&*map, &*colours) {
                        <Overview looking={looking.clone()} map={map.clone()} colours={colours.clone()} />
                    } else if looking.failed.is_none() {
                        <div class="overview waiting" role="status">{ "Reading\u{2026}" }</div>
                    }
                    <Grid looking={looking.clone()} {dark} bytes={row.bytes} />
                    { ranked::tiles(&actor, looking, dark) }
                </div>
                <Side tensor={row.key.clone()} looking={looking.clone()} map={(*map).clone()} inspected={props.inspected.clone()} {title} {axes} dtype={row.dtype.clone()} bytes={row.bytes} taking={props.taking.clone()} />
            </div>
            <footer class="status">
                if let Some(cells) = &looking.cells { <span class="opt dim">{ format!("window read in {}", fmt::seconds(cells.0.millis)) }</span> }
                <span class="grow"></span>
                { props.privacy.clone() }
                <span class="opt dim">{ "shortcuts " }{ cap("?") }</span>
            </footer>
        </main>
    }
}

/// Returns the names of rows and columns.
fn axes(looking: &Looking) -> (AttrValue, AttrValue) {
    let view = &looking.view;
    let (rows, columns) = match (view.rows.zip(view.columns), view.shape.len()) {
        (None, _) => ("rows of elements".into(), "elements".into()),
        (Some((rows, columns)), 3..) => {
            (format!("dim {rows}").into(), format!("dim {columns}").into())
        }
        _ => ("rows".into(), "columns".into()),
    };
    if looking.transposed { (columns, rows) } else { (rows, columns) }
}

fn what(
    looking: &Looking,
    map: &Option<ByIdentity<statelens_inspect::picture::BlockMap>>,
) -> String {
    let Some(map) = map else { return String::new() };
    let of = match map.0.block {
        (1, 1) => "each cell is a value".to_owned(),
        (high, wide) => {
            let what = match looking.show {
                statelens_inspect::picture::Show::Value => "value of largest magnitude",
                statelens_inspect::picture::Show::Magnitude => "largest |x|",
                statelens_inspect::picture::Show::Mean => "mean |x|",
            };
            format!("each cell is the {what} of a {high} \u{d7} {wide} block")
        }
    };
    let act = if touches() { "tap or drag" } else { "click, drag, or use the arrow keys" };
    format!("{of} \u{b7} {act}")
}

fn progress(actor: &Actor, looking: &Looking) -> Html {
    let now = looking.progress;
    if looking.failed.is_some() || now.ended && now.done >= now.total || now.total == 0 {
        return html! {};
    }
    let told = format!("{} of {}", fmt::bytes(now.done), fmt::bytes(now.total));
    if now.ended {
        return html! { <span class="m dim" id="look-stopped">{ format!("stopped after {told}") }</span> };
    }
    let actor = actor.clone();
    let onclick = Callback::from(move |_: MouseEvent| {
        actor.ask(&ToWorker::Looking(LookingRequest::Overview(None)))
    });
    let percent = fmt::percent(now.done, now.total.max(1));
    html! {
        <span class="going" id="look-reading">
            <span class="prog" role="progressbar" aria-label="Reading the whole tensor" aria-valuenow={percent.to_string()} aria-valuemin="0" aria-valuemax="100">
                <i style={format!("--w:{percent}%")}></i></span>
            <span class="m dim">{ told }</span>
            <button class="textlink" id="look-stop" {onclick}>{ "Stop" }</button>
        </span>
    }
}
