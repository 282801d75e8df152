//! Rows of one height, of which only those in sight are in the document.

use yew::prelude::*;

use crate::page::window::{Lines, reveal, use_sight};

/// What they need.
#[derive(Properties, PartialEq)]
pub struct RowsProps {
    /// How many there are.
    pub count: usize,
    /// The height of each.
    pub height: f64,
    /// The one that is looked at.
    pub at: usize,
    /// Counts up when it was chosen elsewhere: then it is scrolled to.
    pub scroll: u32,
    /// Makes a row.
    pub row: Callback<usize, Html>,
    /// What is shown where there is none.
    #[prop_or_default]
    pub children: Html,
}

/// Virtual rows.
#[component]
pub fn Rows(props: &RowsProps) -> Html {
    let node = use_node_ref();
    let lines = Lines::Even { count: props.count, each: props.height };
    let sight = use_sight(&node, &lines);
    let total = lines.total();
    {
        let (node, at) = (node.clone(), props.at);
        use_effect_with(props.scroll, move |_| {
            if let Some(element) = node.cast::<web_sys::Element>() {
                reveal(&element, &lines, at, 0.0, 0.0);
            }
        });
    }
    html! {
        <div class="scroller" role="rowgroup" tabindex="0" ref={node} onscroll={sight.onscroll}>
            <div class="flat" role="presentation" style={format!("height:{total}px")}>
                { for (sight.first..sight.end).map(|at| props.row.emit(at)) }
            </div>
            if props.count == 0 { { props.children.clone() } }
        </div>
    }
}
