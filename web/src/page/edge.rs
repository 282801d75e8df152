//! A draggable edge between two columns or panes, which the arrow keys move too.

use web_sys::{Element, PointerEvent};
use yew::prelude::*;

/// How far an arrow key moves the edge, in pixels.
const STEP: f64 = 16.0;

#[derive(Properties, PartialEq)]
pub struct EdgeProps {
    /// CSS class of the edge.
    pub class: &'static str,
    /// Name of the resized element, for screen readers.
    pub label: AttrValue,
    /// The smallest and the largest width, in pixels.
    pub limits: (f64, f64),
    /// Whether this is the left edge, so that dragging it to the left widens the column.
    pub is_orphan: bool,
    /// Selector of the resized element within the edge's parent; `None` for the parent itself.
    #[prop_or_default]
    pub resized: Option<&'static str>,
    /// Called with the edge and the new width in pixels; `None` for the width that fits the
    /// content.
    pub onresize: Callback<(Element, Option<f64>)>,
}

/// A draggable edge. A double click resets to the width that fits the content.
#[component]
pub fn Edge(props: &EdgeProps) -> Html {
    let node = use_node_ref();
    // The pointer's x coordinate and the width when the drag started.
    let start = use_mut_ref(|| None::<(f64, f64)>);
    let width = use_state(|| None::<f64>);
    let (least, most) = props.limits;
    let sign = if props.is_orphan { -1.0 } else { 1.0 };
    let resized = props.resized;
    let resize = {
        let (width, onresize) = (width.clone(), props.onresize.clone());
        move |edge: Element, to: f64| {
            let to = to.clamp(least, most).round();
            width.set(Some(to));
            onresize.emit((edge, Some(to)));
        }
    };
    let onpointerdown = {
        let (node, start) = (node.clone(), start.clone());
        Callback::from(move |event: PointerEvent| {
            event.prevent_default();
            event.stop_propagation();
            if let Some(edge) = node.cast::<Element>() {
                let _ = edge.set_pointer_capture(event.pointer_id());
                *start.borrow_mut() = Some((f64::from(event.client_x()), width_of(&edge, resized)));
            }
        })
    };
    let onpointermove = {
        let (node, start, resize) = (node.clone(), start.clone(), resize.clone());
        Callback::from(move |event: PointerEvent| {
            let from = *start.borrow();
            if let (Some((x, wide)), Some(edge)) = (from, node.cast::<Element>()) {
                resize(edge, wide + sign * (f64::from(event.client_x()) - x));
            }
        })
    };
    let onpointerup = Callback::from(move |_: PointerEvent| {
        start.borrow_mut().take();
    });
    let onkeydown = {
        let node = node.clone();
        Callback::from(move |event: KeyboardEvent| {
            let by = match event.key().as_str() {
                "ArrowLeft" => -STEP,
                "ArrowRight" => STEP,
                _ => return,
            };
            event.prevent_default();
            event.stop_propagation();
            if let Some(edge) = node.cast::<Element>() {
                let wide = width_of(&edge, resized);
                resize(edge, wide + sign * by);
            }
        })
    };
    let ondblclick = {
        let (node, onresize, width) = (node.clone(), props.onresize.clone(), width.clone());
        Callback::from(move |event: MouseEvent| {
            event.stop_propagation();
            width.set(None);
            if let Some(edge) = node.cast::<Element>() {
                onresize.emit((edge, None));
            }
        })
    };
    html! {
        <span ref={node} class={props.class} role="separator" tabindex="0" aria-orientation="vertical"
            aria-label={props.label.clone()} aria-valuemin={least.to_string()} aria-valuemax={most.to_string()}
            aria-valuenow={width.unwrap_or(least).to_string()} aria-valuetext={width.map_or_else(|| "automatic".to_owned(), |width| format!("{width} pixels"))} onpointercancel={onpointerup.clone()}
            {onpointerdown} {onpointermove} {onpointerup} {onkeydown} {ondblclick}></span>
    }
}

/// Returns the width of the element that an edge resizes.
fn width_of(edge: &Element, resized: Option<&str>) -> f64 {
    let around = edge.parent_element();
    let element = match resized {
        Some(selector) => around.and_then(|it| it.query_selector(selector).ok().flatten()),
        None => around,
    };
    element.map_or(0.0, |element| element.get_bounding_client_rect().width())
}
