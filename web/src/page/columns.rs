//! Resizable columns: a grip at the left edge of each column head. The widths are CSS custom
//! properties of the table, which the head and the rows use.

use wasm_bindgen::JsCast;
use web_sys::{Element, HtmlElement};
use yew::prelude::*;

use crate::page::edge::Edge;

/// The smallest and the largest width of a column, in pixels.
const LIMITS: (f64, f64) = (40.0, 600.0);

/// Properties of the grip of a column.
#[derive(Properties, PartialEq)]
pub struct GripProps {
    /// CSS class of the column.
    pub class: &'static str,
    /// Name of the column.
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
        // This property overrides the width that fits the content; removing it restores that width.
        let property = format!("--own-{class}");
        let _ = match width {
            Some(width) => table.style().set_property(&property, &format!("{width}px")),
            None => table.style().remove_property(&property).map(|_| ()),
        };
    });
    html! { <Edge class="grip" label={format!("Width of {}", props.name)} limits={LIMITS} is_orphan=true {onresize} /> }
}
