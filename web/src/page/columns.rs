//! Columns whose width can be changed: a grip at the left edge of each head. The widths are properties of the
//! table's style, which rows and head use.

use wasm_bindgen::JsCast;
use web_sys::{Element, HtmlElement};
use yew::prelude::*;

use crate::page::edge::Edge;

/// The smallest and the largest width of a column, in pixels.
const LIMITS: (f64, f64) = (40.0, 600.0);

/// The grip of a column.
#[derive(Properties, PartialEq)]
pub struct GripProps {
    /// The class of the column.
    pub class: &'static str,
    /// What the column is called.
    pub name: &'static str,
}

/// The grip of a column.
#[component]
pub fn Grip(props: &GripProps) -> Html {
    let class = props.class;
    let onresize = Callback::from(move |(grip, width): (Element, Option<f64>)| {
        let table = grip.closest(".gridbox").ok().flatten();
        let Some(table) = table.and_then(|table| table.dyn_into::<HtmlElement>().ok()) else {
            return;
        };
        // Above the width that fits the content, which comes back when this one is removed.
        let property = format!("--own-{class}");
        let _ = match width {
            Some(width) => table.style().set_property(&property, &format!("{width}px")),
            None => table.style().remove_property(&property).map(|_| ()),
        };
    });
    html! { <Edge class="grip" label={format!("Width of {}", props.name)} limits={LIMITS} is_left=true {onresize} /> }
}
