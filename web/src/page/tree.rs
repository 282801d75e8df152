//! The tree of modules beside the table.

use yew::prelude::*;

use crate::page::app::Actor;
use crate::page::marks::{classes, when};
use crate::state::fmt;
use crate::state::tree::Branch;
use crate::state::work::Work;

/// The tree.
#[derive(Properties, PartialEq)]
pub struct TreeProps {
    /// The open checkpoint.
    pub work: Work,
}

/// The tree.
#[component]
pub fn TreePane(props: &TreeProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let list = use_node_ref();
    let work = &props.work;
    let at = work.branch();
    {
        // The line that holds what is looked at stays in sight.
        let list = list.clone();
        use_effect_with(at, move |at| {
            if let (Some(at), Some(list)) = (*at, list.cast::<web_sys::Element>()) {
                reveal(&list, at);
            }
        });
    }
    let largest = work.tree.iter().map(|branch| branch.sums.bytes).max().unwrap_or(0).max(1);
    let keys = {
        let (actor, work, list) = (actor.clone(), work.clone(), list.clone());
        Callback::from(move |event: KeyboardEvent| {
            if press(&event, &actor, &work) {
                event.prevent_default();
                event.stop_propagation();
                if let Some(list) = list.cast::<web_sys::HtmlElement>() {
                    let _ = list.focus();
                }
            }
        })
    };
    html! {
        <nav class="tree" aria-label="Tree">
            <div class="pane-h"><b>{ "State" }</b><span class="lab">{ "bytes" }</span></div>
            <ul ref={list} role="tree" aria-label="State" tabindex="0" onkeydown={keys}
                aria-activedescendant={at.map(|at| format!("branch-{at}"))}>
                { for work.tree.iter().enumerate().map(|(index, branch)| {
                    line(&actor, index, branch, at == Some(index), largest)
                }) }
            </ul>
        </nav>
    }
}

fn line(actor: &Actor, index: usize, branch: &Branch, selected: bool, largest: u64) -> Html {
    let look = {
        let actor = actor.clone();
        Callback::from(move |_: MouseEvent| actor.work(move |work| work.look_at_branch(index)))
    };
    let toggle = {
        let (actor, path) = (actor.clone(), branch.path.clone());
        Callback::from(move |event: MouseEvent| {
            event.stop_propagation();
            let path = path.clone();
            actor.work(move |work| work.toggle_branch(&path));
        })
    };
    let share = branch.sums.bytes as f64 / largest as f64 * 100.0;
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
    html! {
        <li id={format!("branch-{index}")} {class} role="treeitem" aria-level={(branch.level + 1).to_string()}
            aria-selected={selected.to_string()} aria-expanded={branch.open.map(|open| open.to_string())}
            style={format!("--l:{};--w:{share:.2}%", branch.level)} onclick={look} title={branch.path.clone()}>
            <span class="n">
                <span class="twist" aria-hidden="true" onclick={branch.open.map(|_| toggle)}></span>
                <span class="t">{ if branch.name.is_empty() { "(itself)" } else { &branch.name } }</span>
                if branch.times > 1 { <span class="x">{ format!("\u{d7}{}", branch.times) }</span> }
            </span>
            if branch.sums.bytes > 0 {
                <span class="bar" aria-hidden="true"><i></i></span>
                <span class="num">{ fmt::bytes(branch.sums.bytes) }</span>
            } else if let Some(value) = &branch.value {
                <span class="num">{ value }</span>
            } else {
                <span class="num">{ fmt::plural(branch.sums.values.max(branch.sums.tensors), if branch.sums.values > 0 { "value" } else { "tensor" }) }</span>
            }
        </li>
    }
}

/// The keys of a tree, as in any other.
fn press(event: &KeyboardEvent, actor: &Actor, work: &Work) -> bool {
    let at = work.branch();
    let last = work.tree.len().saturating_sub(1);
    let go = |index: usize| actor.work(move |work| work.look_at_branch(index));
    let toggle = |index: usize| {
        let path = work.tree[index].path.clone();
        actor.work(move |work| work.toggle_branch(&path));
    };
    match (event.key().as_str(), at) {
        _ if work.tree.is_empty() => return false,
        ("ArrowDown", at) => go(at.map_or(0, |at| (at + 1).min(last))),
        ("ArrowUp", at) => go(at.map_or(0, |at| at.saturating_sub(1))),
        ("Home", _) => go(0),
        ("End", _) => go(last),
        ("ArrowRight", Some(at)) if work.tree[at].open == Some(false) => toggle(at),
        ("ArrowRight", Some(at)) if work.tree[at].open == Some(true) => go((at + 1).min(last)),
        ("ArrowLeft", Some(at)) if work.tree[at].open == Some(true) => toggle(at),
        ("ArrowLeft", Some(at)) => {
            let level = work.tree[at].level;
            match (0..at).rev().find(|&above| work.tree[above].level < level) {
                Some(above) => go(above),
                None => return false,
            }
        }
        ("Enter" | " ", Some(at)) if work.tree[at].open.is_some() => toggle(at),
        _ => return false,
    }
    true
}

fn reveal(list: &web_sys::Element, at: usize) {
    let Some(line) = list.children().item(at as u32) else { return };
    let (inside, around) = (line.get_bounding_client_rect(), list.get_bounding_client_rect());
    if inside.top() < around.top() {
        list.set_scroll_top(list.scroll_top() - (around.top() - inside.top()) as i32 - 8);
    } else if inside.bottom() > around.bottom() {
        list.set_scroll_top(list.scroll_top() + (inside.bottom() - around.bottom()) as i32 + 8);
    }
}
