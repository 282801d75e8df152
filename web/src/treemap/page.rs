//! The treemap of bytes, shown instead of the table, by module or by dtype.

use std::rc::Rc;

use statelens_checkpoint::{order, visible};
use statelens_describe::fold::Sums;
use statelens_describe::treemap::{Cell, Treemap, svg};
use yew::prelude::*;

use crate::convert::state::naming::key_name;
use crate::model_description;
use crate::model_description::message::ModelDescription;
use crate::page::choice::choice;
use crate::page::drop::save_text;
use crate::page::hooks::{ByAddress, use_size};
use crate::page::marks::{cap, classes, when};
use crate::page::model::actor::Actor;
use crate::page::model::{PageModel, Screen, Tab};
use crate::state::dtype::{family, short};
use crate::state::fmt;
use crate::state::work::OpenWork;
use crate::treemap::state::{ByDtype, TreemapView, lay_out};

/// Number of boxes listed for screen readers.
const MAX_LISTED: usize = 40;

impl Actor {
    /// Shows the treemap instead of the table.
    pub fn show_treemap(&self) {
        self.tab(Tab::Keys);
        self.update(move |model| model.treemap = Some(TreemapView::default()));
    }

    /// Zooms out by one level, or goes back to the table.
    pub fn leave_treemap(&self, view: &TreemapView) {
        let mut view = view.clone();
        let out = view.path.pop().is_some();
        self.update(move |model| model.treemap = out.then_some(view));
    }
}

/// Toggles between treemap and table. Returns whether a checkpoint is open.
pub fn toggle(model: &PageModel, actor: &Actor) -> bool {
    match (&model.treemap, model.screen) {
        (Some(_), Screen::Work) => actor.update(move |model| model.treemap = None),
        (None, Screen::Work) => actor.show_treemap(),
        _ => return false,
    }
    true
}

#[derive(Properties, PartialEq)]
pub struct TreemapProps {
    /// The open checkpoint.
    pub work: OpenWork,
    /// The grouping and the zoom path.
    pub view: TreemapView,
    /// The worker's description of the model.
    pub description: Option<Rc<ModelDescription>>,
}

#[component]
pub fn TreemapPane(props: &TreemapProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let (work, view) = (&props.work, &props.view);
    let node = use_node_ref();
    let (wide, high) = use_size(&node);
    let by_dtype = use_memo((view.by_dtype, ByAddress(work.rows.clone())), {
        let (rows, trie) = (work.rows.clone(), work.trie.clone());
        move |(by_dtype, _)| by_dtype.then(|| ByDtype::new(&rows, &trie))
    });
    let size = (wide.floor() as u32, high.floor() as u32);
    let map = use_memo((view.clone(), ByAddress(work.rows.clone()), size), {
        let (rows, trie) = (work.rows.clone(), work.trie.clone());
        move |(view, _, (wide, high))| {
            let size = (f64::from(*wide), f64::from(*high));
            if *wide == 0 {
                return Treemap { size, sums: Sums::default(), cells: Vec::new() };
            }
            lay_out(view, &rows, &trie, Option::as_ref(&by_dtype), size)
        }
    });
    let chosen = use_state(|| None::<usize>);
    let at = current(&map, *chosen, work, view.by_dtype);
    {
        // The treemap takes the focus when it is shown, and again after zooming.
        let node = node.clone();
        use_effect_with(view.clone(), move |_| {
            if let Some(element) = node.cast::<web_sys::HtmlElement>() {
                let _ = element.focus();
            }
        });
    }
    let choose = {
        let (map, chosen) = (map.clone(), chosen.clone());
        actor.on(move |actor, at: usize| {
            chosen.set(Some(at));
            if let Some(cell) = map.cells.get(at) {
                let row = cell.row;
                actor.work(move |work| work.select_row(row));
            }
        })
    };
    let enter = {
        let (map, view) = (map.clone(), view.clone());
        actor.on(move |actor, at: usize| {
            let Some(cell) = map.cells.get(at).filter(|cell| cell.deep) else { return };
            let Some(branch) = &cell.branch else { return };
            let mut view = view.clone();
            view.path.push((branch.clone(), cell.path.clone()));
            actor.update(move |model| model.treemap = Some(view));
        })
    };
    let onkeydown = {
        let (map, choose, enter) = (map.clone(), choose.clone(), enter.clone());
        Callback::from(move |event: KeyboardEvent| {
            let next = match (event.key().as_str(), at) {
                ("ArrowRight", Some(at)) => map.neighbour(at, (1.0, 0.0)),
                ("ArrowLeft", Some(at)) => map.neighbour(at, (-1.0, 0.0)),
                ("ArrowDown", Some(at)) => map.neighbour(at, (0.0, 1.0)),
                ("ArrowUp", Some(at)) => map.neighbour(at, (0.0, -1.0)),
                ("ArrowRight" | "ArrowDown" | "ArrowLeft" | "ArrowUp" | "Home", _) => largest(&map),
                // For a leaf, the box around it.
                ("Enter", Some(at)) => {
                    let around = map.cells.get(at).and_then(|cell| match cell.deep {
                        true => Some(at),
                        false => cell.parent,
                    });
                    around.iter().for_each(|at| enter.emit(*at));
                    None
                }
                _ => return,
            };
            event.prevent_default();
            event.stop_propagation();
            if let Some(next) = next {
                choose.emit(next);
            }
        })
    };
    let cells = map.cells.iter().enumerate().map(|(index, cell)| {
        let of_cell = |callback: &Callback<usize>| {
            let callback = callback.clone();
            Callback::from(move |event: MouseEvent| {
                event.stop_propagation();
                callback.emit(index);
            })
        };
        // A click zooms into a box that contains others, as Enter does; a leaf is shown in the
        // inspector.
        let act = if cell.deep { &enter } else { &choose };
        draw(&map, index, at == Some(index), of_cell(act))
    });
    html! {
        <>
            { head(&actor, work, view, &map) }
            <div class="mapbody">
                <div class="map" ref={node} tabindex="0" role="listbox" aria-label={map.text()} {onkeydown}
                    aria-activedescendant={at.map(|at| format!("box-{at}"))}>{ for cells }</div>
                if let Some(description) = props.description.as_ref().filter(|description| !description.model.parts.is_empty()) {
                    <aside class="mapparts" aria-label="Parameters by part" tabindex="0">
                        <div class="lab">{ "parameters by part" }</div>
                        { model_description::page::parts(&description.model) }
                    </aside>
                }
            </div>
            { table(&map) }
        </>
    }
}

/// Returns the selected box: the chosen one, or the one that contains the row selected elsewhere.
fn current(map: &Treemap, chosen: Option<usize>, work: &OpenWork, by_dtype: bool) -> Option<usize> {
    let row = work.row()?;
    let is_it = |at: &usize| map.cells.get(*at).is_some_and(|cell| cell.row == row);
    chosen.filter(is_it).or_else(|| match by_dtype {
        true => map.cells.iter().rposition(|cell| cell.row == row),
        false => map.holding(&work.trie, row),
    })
}

/// Returns the largest of the boxes that contain no others.
fn largest(map: &Treemap) -> Option<usize> {
    let boxes = map.cells.iter().enumerate().rev().filter(|(_, cell)| !cell.open);
    boxes.max_by_key(|(_, cell)| cell.sums.bytes).map(|(at, _)| at)
}

fn head(actor: &Actor, work: &OpenWork, view: &TreemapView, map: &Rc<Treemap>) -> Html {
    let show = |view: Option<TreemapView>| {
        actor.on(move |actor, _: MouseEvent| {
            let view = view.clone();
            actor.update(move |model| model.treemap = view);
        })
    };
    let by_dtype = view.by_dtype;
    let by = actor.on(|actor, by_dtype: bool| {
        actor.update(move |model| model.treemap = Some(TreemapView { by_dtype, path: Vec::new() }))
    });
    let name = match view.path.last() {
        Some((_, path)) => format!("{} {path}", work.opened.name),
        None => work.opened.name.clone(),
    };
    let save = |kind: &'static str| {
        let (map, name) = (map.clone(), name.clone());
        Callback::from(move |_: MouseEvent| {
            let text = if kind == "svg" { svg(&map, &name) } else { map.csv() };
            save_text(&text, &key_name(&format!("{name} bytes"), kind));
        })
    };
    let path = view.path.iter().enumerate().map(|(at, (_, path))| {
        let before = at.checked_sub(1).map_or("", |before| &view.path[before].1);
        // Each level shows what it adds to the one before.
        let added = path.strip_prefix(before).unwrap_or(path);
        let added = added.strip_prefix(work.trie.dot()).filter(|_| at > 0).unwrap_or(added);
        let view = TreemapView { path: view.path[..=at].to_vec(), ..view.clone() };
        let last = at + 1 == view.path.len();
        html! { <><span class="dim" aria-hidden="true">{ "\u{203a}" }</span>
            <button class="textlink m" title={visible(path)} aria-current={last.then_some("true")} onclick={show(Some(view))}>{ visible(added) }</button></> }
    });
    html! {
        <div class="pane-h maphead">
            { choice(false, "Boxes", &[(false, "by tree"), (true, "by dtype")], by_dtype, by.clone()) }
            <nav class="mapway" aria-label="Current box">
                <button class="textlink" onclick={by.reform(move |_: MouseEvent| by_dtype)}>{ "all" }</button>
                { for path }
                <span class="dim only-l">{ "click a box to zoom in, Esc to go back" }</span>
                <span class="num">{ fmt::bytes(map.sums.bytes) }</span>
            </nav>
            <button class="textlink only-l" onclick={save("svg")}>{ "SVG" }</button>
            <button class="textlink only-l" onclick={save("csv")}>{ "CSV" }</button>
            <button class="btn" onclick={show(None)}>{ "Table " }{ cap("T") }</button>
        </div>
    }
}

fn draw(map: &Treemap, index: usize, selected: bool, onclick: Callback<MouseEvent>) -> Html {
    let cell = &map.cells[index];
    let rect = cell.rect;
    let part = cell.sums.bytes as f64 / map.sums.bytes.max(1) as f64;
    let style = format!(
        "left:{:.1}px;top:{:.1}px;width:{:.1}px;height:{:.1}px;--share:{:.2}",
        rect.left,
        rect.top,
        rect.wide,
        rect.high,
        part.sqrt()
    );
    let text = visible(&cell.text(map.sums.bytes));
    let class = classes(&[
        "box",
        when(cell.open, "open"),
        when(cell.deep, "deep"),
        when(selected, "sel"),
        family(&cell.dtype).class(),
    ]);
    // A letter is about 7 pixels wide; a name needs room for at least three.
    let named = rect.wide >= 26.0 && rect.high >= 15.0;
    let typed = named && !cell.open && rect.high >= 32.0;
    html! {
        <div key={index} id={format!("box-{index}")} {class} {style} role="option" title={text.clone()}
            aria-selected={selected.to_string()} {onclick}>
            if named { <span class="t" aria-hidden="true">{ label(cell, typed, map.sums.bytes) }</span> }
            if typed { <span class="dt" aria-hidden="true">{ format!("{} \u{b7} ", fmt::bytes(cell.sums.bytes)) }{ short(&cell.dtype) }{ if cell.mixed { " +" } else { "" } }{ share(cell, map.sums.bytes) }</span> }
            <span class="unseen">{ text }</span>
        </div>
    }
}

/// Renders the first line of a box. A box with a second line has its bytes there.
fn label(cell: &Cell, is_short: bool, all: u64) -> Html {
    let times = if cell.times > 1 { format!(" \u{d7}{}", cell.times) } else { String::new() };
    let (bytes, share) = (fmt::bytes(cell.sums.bytes), share(cell, all));
    let size = if is_short { String::new() } else { format!("  {bytes}{share}") };
    // `bdi` isolates names in right-to-left scripts, which would otherwise reorder the number.
    html! { <><bdi>{ visible(&cell.name) }</bdi>{ format!("{times}{size}") }</> }
}

fn share(cell: &Cell, all: u64) -> String {
    format!(" \u{b7} {} %", fmt::percent(cell.sums.bytes, all))
}

/// Renders the largest boxes as a table, for screen readers.
fn table(map: &Treemap) -> Html {
    let mut cells: Vec<&Cell> = map.cells.iter().filter(|cell| !cell.open).collect();
    order::by_key(&mut cells, |cell| std::cmp::Reverse(cell.sums.bytes));
    html! {
        <table class="unseen" aria-label="Largest boxes">
            <thead><tr><th>{ "key" }</th><th>{ "dtype" }</th><th>{ "bytes" }</th><th>{ "share" }</th></tr></thead>
            <tbody>{ for cells.iter().take(MAX_LISTED).map(|cell| html! {
                <tr><td>{ visible(&cell.path) }</td><td>{ &cell.dtype }</td><td>{ fmt::bytes(cell.sums.bytes) }</td>
                    <td>{ format!("{} %", fmt::percent(cell.sums.bytes, map.sums.bytes)) }</td></tr>
            }) }</tbody>
        </table>
    }
}
