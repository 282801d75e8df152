//! The tree of modules next to the table. It is virtual: only visible lines are in the document.

use std::ops::Range;
use std::rc::Rc;

use statelens_checkpoint::visible;
use statelens_describe::fold::Trie;
use yew::prelude::*;

use crate::model_description;
use crate::model_description::message::ModelDescription;
use crate::page::choice;
use crate::page::hooks::{ByAddress, use_size, use_small, use_type_scale};
use crate::page::marks::{classes, lined, when};
use crate::page::model::actor::Actor;
use crate::page::text_width::{character_width, line_height};
use crate::page::viewport::{LineLayout, is_visible, reveal, use_viewport};
use crate::state::fmt;
use crate::state::work::OpenWork;
use crate::tree::state::{Tree, TreeWidths};

#[derive(Properties, PartialEq)]
pub struct TreeProps {
    /// The open checkpoint.
    pub work: OpenWork,
    /// The worker's description of the model.
    pub description: Option<Rc<ModelDescription>>,
    /// The list of files, if there are several, and whether it is shown instead of the tree.
    #[prop_or_default]
    pub files: Option<(Html, bool)>,
}

/// The tree of modules.
#[component]
pub fn TreePane(props: &TreeProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let node = use_node_ref();
    let work = &props.work;
    let at = work.branch();
    let small = use_small();
    let (width, _) = use_size(&node);
    let shown = (ByAddress(work.tree.clone()), ByAddress(work.trie.clone()));
    let widths = if small { &TreeWidths::SMALL } else { &TreeWidths::WIDE };
    let room = (if width > 0.0 { width } else { f64::INFINITY }, widths);
    let scale = use_type_scale();
    let lines = use_memo((shown, small, width, scale), |((tree, trie), small, width, _)| {
        lines(&tree.0, &trie.0, *small, (*width, widths))
    });
    let viewport = use_viewport(&node, &lines);
    let total = lines.total();
    let last = use_mut_ref(|| (None, 0.0));
    {
        // Keeps the selected line visible, also when content below the tree appears later and
        // shrinks it. A line that the user scrolled out of view is left there.
        let (node, last, lines) = (node.clone(), last.clone(), lines.clone());
        use_effect_with((at, viewport.height), move |&(at, height)| {
            let (before, was) = last.replace((at, height));
            if let (Some(at), Some(element)) = (at, node.cast::<web_sys::Element>()) {
                let away =
                    before == Some(at) && was > 0.0 && !is_visible(&element, &lines, at, was);
                if !away {
                    reveal(&element, &lines, at, MARGIN, 2.0 * MARGIN);
                }
            }
        });
    }
    let keys = {
        let (work, node) = (work.clone(), node.clone());
        let page = ((viewport.end - viewport.first) / 2).max(1);
        actor.on(move |actor, event: KeyboardEvent| {
            if press(&event, actor, &work, page) {
                event.prevent_default();
                event.stop_propagation();
                if let Some(element) = node.cast::<web_sys::HtmlElement>() {
                    let _ = element.focus();
                }
            }
        })
    };
    let has_files = props.files.as_ref().is_some_and(|(_, shown)| *shown);
    // Only lines in the document can be referenced by `aria-activedescendant`.
    let active = at.filter(|at| (viewport.first..viewport.end).contains(at));
    html! {
        <nav class="tree" aria-label="Tree">
            if let Some((list, shown)) = &props.files {
                <div class="pane-h"><span class="seg small" role="tablist" aria-label="Left pane">
                    { side(&actor, "Files", *shown, true) }{ side(&actor, "Tree", !*shown, false) }</span></div>
                if *shown { { list.clone() } }
            } else {
                <div class="pane-h state-h"><b>{ "State" }</b><span class="lab">{ "bytes" }</span></div>
            }
            <div class="lines" hidden={has_files} ref={node} role="tree" aria-label="State" tabindex="0" onkeydown={keys} onscroll={viewport.onscroll}
                aria-activedescendant={active.map(|at| format!("branch-{at}"))}>
                <ul role="presentation" style={format!("height:{total}px")}>
                    { for (viewport.first..viewport.end).map(|index| line(&actor, work, index, at == Some(index), lines.top(index)..lines.top(index + 1), room)) }
                </ul>
            </div>
            if let Some(description) = props.description.as_ref().filter(|_| !has_files) { { model_description::page::footer(&actor, description, work.selection.is_none()) } }
        </nav>
    }
}

/// Renders a tab of the pane.
fn side(actor: &Actor, name: &'static str, on: bool, files: bool) -> Html {
    let onclick =
        actor.on(move |actor, _: MouseEvent| actor.update(move |model| model.files_shown = files));
    choice::tab(on, name, onclick)
}

/// Pixels kept free above a line that is scrolled to; twice that below it.
const MARGIN: f64 = 8.0;

/// Returns the positions of the lines. A name that is too long for one line wraps.
fn lines(tree: &Tree, trie: &Trie, small: bool, (width, widths): (f64, &TreeWidths)) -> LineLayout {
    // Height of a line and of its text, and how many lines of text it has room for.
    let (each, text, fit) = if small { (44.0, 18.0, 2) } else { (24.0, line_height(), 1) };
    let count = tree.lines.len();
    if width == 0.0 {
        return LineLayout::Even { count, each };
    }
    let height = |line: usize| {
        let lines = tree.line_count(trie, line, (width, widths), &character_width);
        each + text * lines.saturating_sub(fit) as f64
    };
    LineLayout::of_heights((0..count).map(height))
}

fn line(
    actor: &Actor,
    work: &OpenWork,
    index: usize,
    selected: bool,
    place: Range<f64>,
    room: (f64, &TreeWidths),
) -> Html {
    let (tree, trie) = (&work.tree, &work.trie);
    let branch = &tree.lines[index];
    let select =
        actor.on(move |actor, _: MouseEvent| actor.work(move |work| work.select_branch(index)));
    let toggle = {
        let identity = tree.identity(index);
        actor.on(move |actor, event: MouseEvent| {
            event.stop_propagation();
            actor.work(move |work| work.toggle_branch(identity));
        })
    };
    let share = branch.sums.bytes as f64 / tree.largest.max(1) as f64 * 100.0;
    let class = classes(&[
        match branch.open {
            Some(true) => "open",
            Some(false) => "shut",
            None => "end",
        },
        when(branch.level == 0, "top1"),
        when(selected, "sel"),
        branch.family.class(),
    ]);
    let lines = tree.text_lines(trie, index, room, &character_width);
    let (place_of, siblings) = branch.place;
    let number = number(work, index);
    html! {
        <li key={index} id={format!("branch-{index}")} {class} role="treeitem" aria-level={(branch.level + 1).to_string()}
            aria-posinset={place_of.to_string()} aria-setsize={siblings.to_string()}
            aria-selected={selected.to_string()} aria-expanded={branch.open.map(|open| open.to_string())}
            style={format!("top:{}px;height:{}px;--l:{};--w:{share:.2}%", place.start, place.end - place.start, branch.level)} onclick={select} title={visible(&tree.path(trie, index))}>
            // Screen readers would pause where a name wraps.
            <span class="vh">{ spoken(work, index) }</span>
            <span class="n" aria-hidden="true">
                <span class="twist" onclick={branch.open.map(|_| toggle)}></span>
                <span class="t">{ lined(&[("", lines.concat().as_str())], lines.iter().map(String::len)) }</span>
                if branch.times > 1 { <span class="x">{ format!("\u{d7}{}", branch.times) }</span> }
            </span>
            if branch.sums.bytes > 0 {
                <span class="bar" aria-hidden="true"><i></i></span>
                <span class="num" aria-hidden="true">{ number }</span>
            } else {
                <span class="num value" aria-hidden="true">{ number }</span>
            }
        </li>
    }
}

/// Returns the text of a line in one piece, for screen readers.
fn spoken(work: &OpenWork, index: usize) -> String {
    let branch = &work.tree.lines[index];
    let name = visible(&work.tree.name(&work.trie, index));
    let times = if branch.times > 1 { format!(" \u{d7}{}", branch.times) } else { String::new() };
    format!("{name}{times} {}", number(work, index))
}

/// Returns the bytes of a line, or its value, or the number of its values.
fn number(work: &OpenWork, index: usize) -> String {
    let (branch, tree) = (&work.tree.lines[index], &work.tree);
    if branch.sums.bytes > 0 {
        return fmt::bytes(branch.sums.bytes);
    }
    match tree.value(&work.trie, &work.rows, index) {
        Some(value) => value.to_owned(),
        None => {
            let sums = &branch.sums;
            let word = if sums.values > 0 { "value" } else { "tensor" };
            fmt::plural(sums.values.max(sums.tensors), word)
        }
    }
}

/// Handles a key with the usual meaning in a tree. Returns whether the key has one.
fn press(event: &KeyboardEvent, actor: &Actor, work: &OpenWork, page: usize) -> bool {
    let key = event.key();
    let is_known = step(&key, work, page).is_some();
    if is_known {
        // Computed again from the current selection: keys may arrive faster than the page renders.
        actor.work(move |work| match step(&key, work, page) {
            Some(TreeStep::Go(at)) => work.select_branch(at),
            Some(TreeStep::Toggle(at)) => work.toggle_branch(work.tree.identity(at)),
            None => {}
        });
    }
    is_known
}

/// The effect of a key: selects a line, or opens or closes it.
enum TreeStep {
    Go(usize),
    Toggle(usize),
}

/// Returns the effect of a key; `None` if the tree does not use the key. A page has `page` lines.
fn step(key: &str, work: &OpenWork, page: usize) -> Option<TreeStep> {
    use TreeStep::{Go, Toggle};
    let lines = &work.tree.lines;
    let last = lines.len().checked_sub(1)?;
    Some(match (key, work.branch()) {
        ("ArrowDown", at) => Go(at.map_or(0, |at| (at + 1).min(last))),
        ("ArrowUp", at) => Go(at.map_or(0, |at| at.saturating_sub(1))),
        ("PageDown", at) => Go(at.map_or(0, |at| (at + page).min(last))),
        ("PageUp", at) => Go(at.map_or(0, |at| at.saturating_sub(page))),
        ("Home", _) => Go(0),
        ("End", _) => Go(last),
        ("ArrowRight", Some(at)) if lines[at].open == Some(false) => Toggle(at),
        ("ArrowRight", Some(at)) if lines[at].open == Some(true) => Go((at + 1).min(last)),
        ("ArrowLeft", Some(at)) if lines[at].open == Some(true) => Toggle(at),
        ("ArrowLeft", Some(at)) => Go(work.tree.up(at)?),
        ("Enter" | " ", Some(at)) if lines[at].open.is_some() => Toggle(at),
        _ => return None,
    })
}
