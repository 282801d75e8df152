//! The table of keys before and after, folded by layer. Only visible rows are in the document.

use std::rc::Rc;

use yew::prelude::*;

use crate::family::message::{FamilyReply, KeyRow};
use crate::page::hooks::{ByAddress, use_size, use_small};
use crate::page::marks::{classes, key, when};
use crate::page::viewport::{LineLayout, use_viewport};
use crate::page::wrapping_key::WrappingKey;
use crate::state::fmt::exact;

/// Height of a row in pixels, on large and on small screens.
const ROW: (f64, f64) = (23.0, 60.0);
/// Padding in pixels of a key, and its indentation below a head.
const PADDING: f64 = 10.0;
const INDENT: f64 = 14.0;

#[derive(Properties, PartialEq)]
pub struct TableProps {
    /// The worker's reply about the model family.
    pub reply: Rc<FamilyReply>,
}

/// The table of keys.
#[component]
pub fn FamilyTable(props: &TableProps) -> Html {
    let node = use_node_ref();
    let reply = props.reply.clone();
    let rows = use_memo(reply, |reply| {
        reply.shown.as_ref().map_or(Vec::new(), |shown| grouped(&shown.rows))
    });
    let small = use_small();
    // On large screens keys wrap.
    let heads = (use_node_ref(), use_node_ref());
    let room = |width: f64| if small || width == 0.0 { f64::INFINITY } else { width - PADDING };
    let room = (room(use_size(&heads.0).0), room(use_size(&heads.1).0));
    let lines = use_memo((ByAddress(rows.clone()), small, room), |(rows, small, room)| {
        let each = if *small { ROW.1 } else { ROW.0 };
        LineLayout::of_heights(rows.0.iter().map(|line| line.height(*room, each)))
    });
    let viewport = use_viewport(&node, &lines);
    let (first, end) = (viewport.first.min(rows.len()), viewport.end.min(rows.len()));
    let gap = |height: f64| {
        html! {
            if height > 0.0 {
                <tr class="gap" aria-hidden="true"><td colspan="5" style={format!("height:{height}px")}></td></tr>
            }
        }
    };
    html! {
        <div class="preview fam" id="family-table">
            <div ref={node} class="scroll" role="group" tabindex="0" aria-label="Keys before and after" onscroll={viewport.onscroll}>
                <table class="ren" aria-rowcount={(rows.len() + 1).to_string()}>
                    <colgroup><col class="c-old" /><col class="c-ar" /><col /><col class="c-how" /><col class="c-x" /></colgroup>
                    <thead><tr><th scope="col" ref={heads.0}>{ "key in the checkpoint" }</th><th><span class="vh">{ "becomes" }</span></th><th scope="col" ref={heads.1}>{ "key in the output" }</th>
                        <th scope="col">{ "operation" }</th><th scope="col" class="num">{ "keys" }</th></tr></thead>
                    <tbody>
                        { gap(lines.top(first)) }
                        { for rows.iter().enumerate().take(end).skip(first).map(|(at, shown)| line(at, shown, lines.top(at + 1) - lines.top(at), room)) }
                        { gap(lines.total() - lines.top(end)) }
                    </tbody>
                </table>
            </div>
        </div>
    }
}

#[derive(Debug, Clone, PartialEq)]
enum FamilyLine {
    /// The common prefix of the keys below, before and after.
    Head(String, String),
    /// A row of keys, and the lengths of the prefixes (old, new) that the head above already shows.
    Keys(KeyRow, usize, usize),
}

impl FamilyLine {
    /// Returns the keys before and after.
    fn keys(&self) -> (WrappingKey<'_>, WrappingKey<'_>) {
        let (old, new, indent) = match self {
            Self::Head(old, new) => (&**old, &**new, 0.0),
            Self::Keys(row, old, new) => (
                row.old.get(*old..).unwrap_or(&row.old),
                row.new.get(*new..).unwrap_or(&row.new),
                if *old > 0 { INDENT } else { 0.0 },
            ),
        };
        (WrappingKey::new(old, indent), WrappingKey::new(new, indent))
    }

    /// Returns the height of the line in pixels if the columns of keys have these widths, given the
    /// height of lines whose keys don't wrap.
    fn height(&self, room: (f64, f64), each: f64) -> f64 {
        let (old, new) = self.keys();
        old.height(room.0, each).max(new.height(room.1, each))
    }
}

/// Groups rows that share their prefix up to the layer number below a head with that prefix.
fn grouped(rows: &[KeyRow]) -> Vec<FamilyLine> {
    let mut groups: Vec<((&str, &str), Vec<&KeyRow>)> = Vec::new();
    for row in rows {
        let begin = match (row.unmatched, prefix(&row.old), prefix(&row.new)) {
            (false, old, new) if !old.is_empty() && !new.is_empty() => (old, new),
            _ => ("", ""),
        };
        match groups.iter_mut().find(|(own, _)| *own == begin && !begin.0.is_empty()) {
            Some((_, group)) => group.push(row),
            None => groups.push((begin, vec![row])),
        }
    }
    let mut out = Vec::new();
    for ((old, new), group) in groups {
        let shared = group.len() > 1;
        if shared {
            out.push(FamilyLine::Head(old.to_owned(), new.to_owned()));
        }
        let (old, new) = if shared { (old.len(), new.len()) } else { (0, 0) };
        out.extend(group.into_iter().map(|row| FamilyLine::Keys(row.clone(), old, new)));
    }
    out
}

/// Returns the prefix of a key up to and including its layer number; empty for a list of several
/// keys.
fn prefix(key: &str) -> &str {
    let mut at = 0;
    for part in key.split_inclusive('.') {
        at += part.len();
        if key.contains(" + ") {
            break;
        }
        if part.starts_with(|c: char| c.is_ascii_digit()) {
            return key.get(..at).unwrap_or_default();
        }
    }
    ""
}

fn line(at: usize, shown: &FamilyLine, height: f64, room: (f64, f64)) -> Html {
    let rowindex = (at + 2).to_string();
    let (old_key, new_key) = shown.keys();
    let (old_key, new_key) = (old_key.html(None, room.0), new_key.html(None, room.1));
    let style = format!("height:{height}px");
    match shown {
        FamilyLine::Head(old, new) => html! {
            <tr class="kh" aria-rowindex={rowindex} {style}>
                <td title={old.clone()}>{ old_key }</td><td class="ar">{ "\u{2192}" }</td>
                <td title={new.clone()}>{ new_key }</td><td></td><td></td>
            </tr>
        },
        FamilyLine::Keys(row, cut, _) => keys((rowindex, style), row, *cut > 0, (old_key, new_key)),
    }
}

fn keys(
    (rowindex, style): (String, String),
    row: &KeyRow,
    is_below: bool,
    (old, new): (Html, Html),
) -> Html {
    let old = match row.old.is_empty() {
        true => html! { <span class="dim">{ "not in the checkpoint" }</span> },
        false => old,
    };
    let new = match (row.unmatched, row.new.is_empty()) {
        (true, _) if row.nearest.is_empty() => {
            html! { <span class="near"><b class="w-warn">{ "no rule" }</b></span> }
        }
        (true, _) => {
            html! { <span class="near"><b class="w-warn">{ "no rule; nearest" }</b>{ key(&row.nearest) }</span> }
        }
        (false, true) => html! { <span class="dim">{ "\u{2013}" }</span> },
        (false, false) => new,
    };
    let operations = if row.unmatched { "none" } else { &row.operations };
    let class = classes(&[
        when(row.unmatched, "none"),
        when(is_below, "kd"),
        when(row.new.is_empty() && !row.unmatched, "out"),
        when(row.rearranged, "does"),
    ]);
    html! {
        <tr {class} aria-rowindex={rowindex} {style}>
            <td title={row.old.clone()}>{ old }</td>
            <td class="ar">{ if row.new.is_empty() { "" } else { "\u{2192}" } }</td>
            <td title={if row.unmatched { row.nearest.clone() } else { row.new.clone() }}>{ new }</td>
            <td class="how" title={operations.to_owned()}>{ operations.to_owned() }</td>
            <td class="num dim">{ exact(row.times) }</td>
        </tr>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(old: &str, new: &str) -> KeyRow {
        KeyRow {
            old: old.into(),
            new: new.into(),
            operations: "copy".into(),
            rearranged: false,
            times: 2,
            unmatched: false,
            nearest: String::new(),
        }
    }

    #[test]
    fn groups_keys_of_layers_under_their_prefix() {
        let rows = [
            row("embed.w", "wte.w"),
            row("model.layers.0–1.q.w", "h.0–1.q.w"),
            row("model.layers.0–1.k.w", "h.0–1.k.w"),
            row("model.layers.0–1.mask", ""),
            row("x.0.a + x.0.b", "h.0–1.both"),
        ];
        let shown = grouped(&rows);
        assert_eq!(shown.len(), 6);
        assert_eq!(shown[1], FamilyLine::Head("model.layers.0–1.".into(), "h.0–1.".into()));
        assert!(
            matches!(&shown[2], FamilyLine::Keys(row, 19, 8) if row.new == "h.0–1.q.w"),
            "{shown:?}"
        );
        assert!(matches!(&shown[4], FamilyLine::Keys(_, 0, 0)));
        assert_eq!(prefix("model.norm.weight"), "");
    }
}
