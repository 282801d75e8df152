//! Columns whose width can be changed: a grip at the left edge of each head, for the pointer and for
//! the arrow keys. The widths are properties of the table's style, which rows and head go by.

use wasm_bindgen::JsCast;
use web_sys::{Element, HtmlElement, PointerEvent};
use yew::prelude::*;

/// How narrow a column can be, and how wide, in pixels.
const LEAST: f64 = 40.0;
const MOST: f64 = 600.0;
/// How far an arrow key moves the edge.
const STEP: f64 = 16.0;

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
    let node = use_node_ref();
    // Where the pointer was when it took hold, and how wide the column was.
    let held = use_mut_ref(|| None::<(f64, f64)>);
    let width = use_state(|| None::<f64>);
    let resize = {
        let (node, class, width) = (node.clone(), props.class, width.clone());
        move |to: f64| {
            let to = to.clamp(LEAST, MOST).round();
            set(&node, class, to);
            width.set(Some(to));
        }
    };
    let onpointerdown = {
        let (node, held) = (node.clone(), held.clone());
        Callback::from(move |event: PointerEvent| {
            event.prevent_default();
            event.stop_propagation();
            if let Some(grip) = node.cast::<Element>() {
                let _ = grip.set_pointer_capture(event.pointer_id());
                *held.borrow_mut() = Some((f64::from(event.client_x()), wide(&grip)));
            }
        })
    };
    let onpointermove = {
        let (held, resize) = (held.clone(), resize.clone());
        Callback::from(move |event: PointerEvent| {
            let from = *held.borrow();
            if let Some((x, wide)) = from {
                resize(wide + x - f64::from(event.client_x()));
            }
        })
    };
    let onpointerup = Callback::from(move |_: PointerEvent| {
        held.borrow_mut().take();
    });
    let onkeydown = {
        let node = node.clone();
        Callback::from(move |event: KeyboardEvent| {
            let by = match event.key().as_str() {
                "ArrowLeft" => STEP,
                "ArrowRight" => -STEP,
                _ => return,
            };
            event.prevent_default();
            event.stop_propagation();
            if let Some(grip) = node.cast::<Element>() {
                resize(wide(&grip) + by);
            }
        })
    };
    html! {
        <span ref={node} class="grip" role="separator" tabindex="0" aria-orientation="vertical"
            aria-label={format!("Width of {}", props.name)} aria-valuemin={LEAST.to_string()} aria-valuemax={MOST.to_string()}
            aria-valuenow={width.unwrap_or(LEAST).to_string()} onpointercancel={onpointerup.clone()}
            {onpointerdown} {onpointermove} {onpointerup} {onkeydown}></span>
    }
}

/// How wide the column of a grip is.
fn wide(grip: &Element) -> f64 {
    grip.parent_element().map_or(0.0, |cell| cell.get_bounding_client_rect().width())
}

fn set(grip: &NodeRef, class: &str, width: f64) {
    let table = grip.cast::<Element>().and_then(|grip| grip.closest(".gridbox").ok().flatten());
    if let Some(table) = table.and_then(|table| table.dyn_into::<HtmlElement>().ok()) {
        let _ = table.style().set_property(&format!("--{class}"), &format!("{width}px"));
    }
}
