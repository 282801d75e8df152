//! The table of keys before and after, folded by layer; only what is in sight is in the document.

use std::rc::Rc;

use yew::prelude::*;

use crate::page::hooks::use_small;
use crate::page::marks::{classes, key, when};
use crate::page::window::{Lines, use_sight};
use crate::protocol::family::{Row, Told};
use crate::state::fmt::exact;

/// How high a row is, in pixels, on a large screen and a small one.
const ROW: (f64, f64) = (23.0, 60.0);

/// The table.
#[derive(Properties, PartialEq)]
pub struct TableProps {
    /// What the worker told.
    pub told: Rc<Told>,
}

/// The table.
#[component]
pub fn FamilyTable(props: &TableProps) -> Html {
    let node = use_node_ref();
    let rows = props.told.shown.as_ref().map_or(&[][..], |shown| &shown.rows);
    let each = if use_small() { ROW.1 } else { ROW.0 };
    let lines = Lines::Even { count: rows.len(), each };
    let sight = use_sight(&node, &lines);
    let (first, end) = (sight.first.min(rows.len()), sight.end.min(rows.len()));
    let gap = |height: f64| {
        html! {
            if height > 0.0 {
                <tr class="gap" aria-hidden="true"><td colspan="5" style={format!("height:{height}px")}></td></tr>
            }
        }
    };
    html! {
        <div class="preview fam" id="family-table">
            <div ref={node} class="scroll" role="group" tabindex="0" aria-label="Keys before and after" onscroll={sight.onscroll}>
                <table class="ren" aria-rowcount={(rows.len() + 1).to_string()}>
                    <colgroup><col /><col class="c-ar" /><col /><col class="c-how" /><col class="c-x" /></colgroup>
                    <thead><tr><th scope="col">{ "key in the checkpoint" }</th><th><span class="vh">{ "becomes" }</span></th><th scope="col">{ "key in the output" }</th>
                        <th scope="col">{ "what is done" }</th><th scope="col" class="num">{ "keys" }</th></tr></thead>
                    <tbody>
                        { gap(lines.top(first)) }
                        { for rows.iter().enumerate().take(end).skip(first).map(|(at, row)| line(at, row)) }
                        { gap(lines.total() - lines.top(end)) }
                    </tbody>
                </table>
            </div>
        </div>
    }
}

fn line(at: usize, row: &Row) -> Html {
    let old = match row.old.is_empty() {
        true => html! { <span class="dim">{ "not in the checkpoint" }</span> },
        false => key(&row.old),
    };
    let new = match (row.unmatched, row.new.is_empty()) {
        (true, _) if row.nearest.is_empty() => {
            html! { <span class="w-warn">{ "no rule is about it" }</span> }
        }
        (true, _) => {
            html! { <><span class="w-warn">{ "no rule; nearest " }</span>{ key(&row.nearest) }</> }
        }
        (false, true) => html! { <span class="dim">{ "left out" }</span> },
        (false, false) => key(&row.new),
    };
    let how = if row.unmatched { "none" } else { &row.how };
    let class = classes(&[
        when(row.unmatched, "none"),
        when(row.new.is_empty() && !row.unmatched, "out"),
        when(row.how != "copy" && !row.unmatched && !row.new.is_empty(), "does"),
    ]);
    html! {
        <tr {class} aria-rowindex={(at + 2).to_string()}>
            <td title={row.old.clone()}>{ old }</td>
            <td class="ar">{ if row.new.is_empty() { "" } else { "\u{2192}" } }</td>
            <td title={if row.unmatched { row.nearest.clone() } else { row.new.clone() }}>{ new }</td>
            <td class="how" title={how.to_owned()}>{ how.to_owned() }</td>
            <td class="num dim">{ exact(row.times) }</td>
        </tr>
    }
}
