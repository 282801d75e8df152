//! Hooks for window events, the size of an element, media queries and focus.

use std::rc::Rc;

use js_sys::Array;
use wasm_bindgen::prelude::*;
use web_sys::{Element, Event, ResizeObserver};
use yew::prelude::*;

use crate::page::text_width;

/// A shared value that compares by address. It holds the `Rc`, so that the address can't be reused
/// by another value.
#[derive(Debug)]
pub struct ByAddress<T>(pub Rc<T>);

impl<T> PartialEq for ByAddress<T> {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl<T> Clone for ByAddress<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Listens to a window event while the component is mounted. The listener is registered once and
/// calls the latest callback, so no event is missed between renders.
#[hook]
pub fn use_window_event(name: &'static str, listen: Callback<Event>) {
    let latest = use_mut_ref(Callback::noop);
    *latest.borrow_mut() = listen;
    use_effect_with((), move |()| {
        let closure = Closure::<dyn Fn(Event)>::new(move |event| {
            // The borrow ends before the call, since the callback may cause a render that borrows
            // it.
            let listen = latest.borrow().clone();
            listen.emit(event);
        });
        let window = web_sys::window();
        if let Some(window) = &window {
            let _ = window.add_event_listener_with_callback(name, closure.as_ref().unchecked_ref());
        }
        move || {
            if let Some(window) = &window {
                let _ = window
                    .remove_event_listener_with_callback(name, closure.as_ref().unchecked_ref());
            }
        }
    });
}

/// Returns the inner size of an element in CSS pixels, and re-renders when it changes.
#[hook]
pub fn use_size(node: &NodeRef) -> (f64, f64) {
    let size = use_state(|| (0.0, 0.0));
    {
        let size = size.clone();
        use_effect_with(node.clone(), move |node| {
            let element = node.cast::<Element>();
            let measured = element.clone();
            let last = Rc::new(std::cell::Cell::new((0.0, 0.0)));
            let closure = Closure::<dyn FnMut(Array)>::new(move |_: Array| {
                if let Some(element) = &measured {
                    let now =
                        (f64::from(element.client_width()), f64::from(element.client_height()));
                    if last.replace(now) != now {
                        size.set(now);
                    }
                }
            });
            let observer = ResizeObserver::new(closure.as_ref().unchecked_ref()).ok();
            if let (Some(observer), Some(element)) = (&observer, &element) {
                observer.observe(element);
            }
            move || {
                if let Some(observer) = observer {
                    observer.disconnect();
                }
                drop(closure);
            }
        });
    }
    *size
}

/// Returns whether the main pointing device is a finger.
pub fn has_touch() -> bool {
    let query =
        web_sys::window().and_then(|window| window.match_media("(pointer: coarse)").ok()?);
    query.is_some_and(|query| query.matches())
}

/// Returns whether the window is at most 720 px wide, and re-renders when that changes.
#[hook]
pub fn use_small() -> bool {
    use_media("(max-width: 720px)")
}

/// Returns how many times as large type is as in windows narrower than 1,920 px, as the style sheet
/// says (`tokens.css`).
#[hook]
pub fn use_type_scale() -> f64 {
    let (wide, wider) = (use_media("(min-width: 1920px)"), use_media("(min-width: 2400px)"));
    let size = match (wide, wider) {
        (_, true) => 14.0,
        (true, false) => 13.0,
        (false, false) => 12.0,
    };
    let scale = size / 12.0;
    use_memo((wide, wider), |_| text_width::set_scale(scale));
    scale
}

/// Returns whether a media query matches, and re-renders when that changes.
#[hook]
pub fn use_media(query: &'static str) -> bool {
    let query = use_memo((), |()| {
        web_sys::window().and_then(|window| window.match_media(query).ok().flatten())
    });
    let small = use_state(|| query.as_ref().as_ref().is_some_and(web_sys::MediaQueryList::matches));
    {
        let small = small.clone();
        use_effect_with((), move |()| {
            let query = query.as_ref().clone();
            let watched = query.clone();
            let closure = Closure::<dyn FnMut(Event)>::new(move |_| {
                small.set(watched.as_ref().is_some_and(web_sys::MediaQueryList::matches));
            });
            if let Some(query) = &query {
                let _ = query
                    .add_event_listener_with_callback("change", closure.as_ref().unchecked_ref());
            }
            move || {
                if let Some(query) = &query {
                    let _ = query.remove_event_listener_with_callback(
                        "change",
                        closure.as_ref().unchecked_ref(),
                    );
                }
            }
        });
    }
    *small
}

/// Keeps Tab inside an element while it is mounted, and restores the focus afterwards. Focuses the
/// descendant that has the attribute `data-focus`, else the element itself.
#[hook]
pub fn use_focus_trap(node: &NodeRef) {
    let node = node.clone();
    use_effect_with((), move |()| {
        let document = web_sys::window().and_then(|window| window.document());
        let before = document.as_ref().and_then(web_sys::Document::active_element);
        let element = node.cast::<web_sys::HtmlElement>();
        if let Some(element) = &element {
            let first = element.query_selector("[data-focus]").ok().flatten();
            let first = first.and_then(|first| first.dyn_into::<web_sys::HtmlElement>().ok());
            let _ = first.as_ref().unwrap_or(element).focus();
        }
        let trapped = element.clone();
        let closure =
            Closure::<dyn Fn(web_sys::KeyboardEvent)>::new(move |event: web_sys::KeyboardEvent| {
                if event.key() == "Tab"
                    && let Some(element) = &trapped
                {
                    keep_inside(element, &event);
                }
            });
        if let Some(element) = &element {
            let _ = element
                .add_event_listener_with_callback("keydown", closure.as_ref().unchecked_ref());
        }
        move || {
            // The key event that closes the dialog may still be propagating through it.
            if let Some(element) = &element {
                let _ = element.remove_event_listener_with_callback(
                    "keydown",
                    closure.as_ref().unchecked_ref(),
                );
            }
            drop(closure);
            if let Some(before) =
                before.and_then(|before| before.dyn_into::<web_sys::HtmlElement>().ok())
            {
                let _ = before.focus();
            }
        }
    });
}

fn keep_inside(element: &web_sys::HtmlElement, event: &web_sys::KeyboardEvent) {
    let Ok(stops) = element
        .query_selector_all("button:not([disabled]), input, select, a[href], [tabindex='0']")
    else {
        return;
    };
    let stop =
        |at: u32| stops.get(at).and_then(|node| node.dyn_into::<web_sys::HtmlElement>().ok());
    let (Some(first), Some(last)) = (stop(0), stop(stops.length().saturating_sub(1))) else {
        return;
    };
    let active =
        web_sys::window().and_then(|window| window.document()).and_then(|doc| doc.active_element());
    let is = |other: &web_sys::HtmlElement| {
        active.as_ref().is_some_and(|active| active.is_same_node(Some(other)))
    };
    if event.shift_key() && (is(&first) || is(element)) {
        event.prevent_default();
        let _ = last.focus();
    } else if !event.shift_key() && is(&last) {
        event.prevent_default();
        let _ = first.focus();
    }
}
