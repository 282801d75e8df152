//! Virtual rows of one height: of many, only those in sight are in the document.

use yew::prelude::*;

use crate::page::hooks::use_size;

/// Rows kept beyond both edges, so that a quick scroll shows no gap.
const SPARE: f64 = 240.0;

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
    let (_, shown) = use_size(&node);
    let top = use_state(|| 0.0);
    let each = props.height;
    let onscroll = {
        let (top, node) = (top.clone(), node.clone());
        Callback::from(move |_: Event| {
            if let Some(element) = node.cast::<web_sys::Element>() {
                top.set(f64::from(element.scroll_top()));
            }
        })
    };
    {
        let (node, at) = (node.clone(), props.at);
        use_effect_with(props.scroll, move |_| {
            if let Some(element) = node.cast::<web_sys::Element>() {
                let from = f64::from(element.scroll_top());
                let end = from + f64::from(element.client_height());
                let line = at as f64 * each;
                if line < from {
                    element.set_scroll_top(line as i32);
                } else if line + each > end {
                    element.set_scroll_top((line + each + from - end) as i32);
                }
            }
        });
    }
    let first = ((*top - SPARE).max(0.0) / each) as usize;
    let last = (((*top + shown.max(200.0) + SPARE) / each) as usize + 1).min(props.count);
    html! {
        <div class="scroller" role="rowgroup" ref={node} {onscroll}>
            <div class="flat" role="presentation" style={format!("height:{}px", each * props.count as f64)}>
                { for (first..last).map(|at| props.row.emit(at)) }
            </div>
            if props.count == 0 { { props.children.clone() } }
        </div>
    }
}
