//! Resizable panes. The browser stores their widths.

use wasm_bindgen::JsCast;
use web_sys::{Element, HtmlElement};
use yew::prelude::*;

use crate::page::edge::Edge;
use crate::page::stored::{store_width, stored_width};

/// A pane next to the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pane {
    /// The tree, at the left.
    Tree,
    /// The inspector, at the right.
    Inspector,
}

/// The smallest and the largest width of a pane, in pixels.
const LIMITS: (f64, f64) = (180.0, 720.0);

impl Pane {
    /// Returns the name used for the CSS property and for the stored width.
    fn name(self) -> &'static str {
        match self {
            Self::Tree => "tree",
            Self::Inspector => "insp",
        }
    }
}

#[derive(Properties, PartialEq)]
pub struct PaneEdgeProps {
    pub pane: Pane,
}

/// The draggable edge between a pane and the table.
#[component]
pub fn PaneEdge(props: &PaneEdgeProps) -> Html {
    let pane = props.pane;
    use_effect_with((), move |()| {
        if let Some(width) = stored_width(pane.name()) {
            set(pane, Some(width.clamp(LIMITS.0, LIMITS.1)));
        }
    });
    let onresize = Callback::from(move |(_, width): (Element, Option<f64>)| {
        set(pane, width);
        store_width(pane.name(), width);
    });
    let (class, label, resized) = match pane {
        Pane::Tree => ("splitter of-tree", "Width of the tree", ".tree"),
        Pane::Inspector => ("splitter of-insp", "Width of the inspector", ".insp"),
    };
    html! { <Edge {class} {label} limits={LIMITS} is_orphan={pane == Pane::Inspector} {resized} {onresize} /> }
}

fn set(pane: Pane, width: Option<f64>) {
    let document = web_sys::window().and_then(|window| window.document());
    let root = document.and_then(|document| document.document_element());
    let Some(root) = root.and_then(|root| root.dyn_into::<HtmlElement>().ok()) else { return };
    let property = format!("--{}", pane.name());
    let _ = match width {
        Some(width) => root.style().set_property(&property, &format!("{width}px")),
        None => root.style().remove_property(&property).map(|_| ()),
    };
}
