//! A virtual list of rows: only visible rows are in the document.

use yew::prelude::*;

use crate::page::viewport::{LineLayout, reveal, use_viewport};

/// Properties of the list.
#[derive(Properties, PartialEq)]
pub struct RowsProps {
    /// Positions of the rows.
    pub lines: LineLayout,
    /// Index of the selected row.
    pub at: usize,
    /// Incremented when the selection changed elsewhere; the list then scrolls to the row.
    pub scroll: u32,
    /// Renders a row by its index.
    pub row: Callback<usize, Html>,
    /// Content shown if the list is empty.
    #[prop_or_default]
    pub children: Html,
}

/// The virtual list.
#[component]
pub fn Rows(props: &RowsProps) -> Html {
    let node = use_node_ref();
    let lines = &props.lines;
    let viewport = use_viewport(&node, lines);
    let total = lines.total();
    {
        let (node, lines, at) = (node.clone(), lines.clone(), props.at);
        use_effect_with(props.scroll, move |_| {
            if let Some(element) = node.cast::<web_sys::Element>() {
                reveal(&element, &lines, at, 0.0, 0.0);
            }
        });
    }
    html! {
        <div class="scroller" role="rowgroup" tabindex="0" ref={node} onscroll={viewport.onscroll}>
            <div class="flat" role="presentation" style={format!("height:{total}px")}>
                { for (viewport.first..viewport.end).map(|at| props.row.emit(at)) }
            </div>
            if lines.count() == 0 { { props.children.clone() } }
        </div>
    }
}
