//! Picking rows by touch, without modifier keys: a long press picks a row, and while rows are
//! picked, a tap picks more.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use gloo_timers::callback::Timeout;
use wasm_bindgen::JsCast;
use web_sys::{Element, Event, MouseEvent, PointerEvent};
use yew::prelude::*;

use crate::page::model::actor::Actor;

/// Milliseconds of a long press, and pixels that the finger may move meanwhile.
const LONG_PRESS: u32 = 450;
const DRAG_THRESHOLD: f64 = 10.0;

/// State of a touch on the table.
#[derive(Clone, Default)]
pub(crate) struct LongPress(Rc<LongPressState>);

#[derive(Default)]
struct LongPressState {
    timer: RefCell<Option<Timeout>>,
    from: Cell<(f64, f64)>,
    /// Whether the current touch has already picked a row.
    picked: Cell<bool>,
}

impl PartialEq for LongPress {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl LongPress {
    /// Returns whether a click ends a touch that has already picked a row, and resets that.
    pub(crate) fn has_picked(&self) -> bool {
        self.0.picked.take()
    }

    /// Returns the listeners for pointer down, move and end on the element that has the rows.
    pub(crate) fn listeners(&self, actor: &Actor) -> [Callback<PointerEvent>; 3] {
        let state = self.0.clone();
        let down = actor.on(move |actor, event: PointerEvent| {
            state.picked.set(false);
            let Some(line) = line_of(&event).filter(|_| event.pointer_type() == "touch") else {
                return;
            };
            state.from.set(place(&event));
            let (resting, actor) = (state.clone(), actor.clone());
            let timer = Timeout::new(LONG_PRESS, move || {
                resting.picked.set(true);
                actor.work(move |work| work.toggle_pick(line));
            });
            state.timer.replace(Some(timer));
        });
        let state = self.0.clone();
        let moved = Callback::from(move |event: PointerEvent| {
            let ((left, top), (x, y)) = (state.from.get(), place(&event));
            if (x - left).hypot(y - top) > DRAG_THRESHOLD {
                state.timer.replace(None);
            }
        });
        let state = self.0.clone();
        // The browser scrolls, or the finger was lifted.
        let ended = Callback::from(move |_: PointerEvent| drop(state.timer.replace(None)));
        [down, moved, ended]
    }

    /// Returns a listener that suppresses the context menu during a long press.
    pub(crate) fn menu(&self) -> Callback<MouseEvent> {
        let state = self.0.clone();
        Callback::from(move |event: MouseEvent| {
            if state.picked.get() || state.timer.borrow().is_some() {
                event.prevent_default();
            }
        })
    }
}

/// Returns whether a click was made by touch.
pub(crate) fn is_tap(event: &MouseEvent) -> bool {
    event.dyn_ref::<PointerEvent>().is_some_and(|event| event.pointer_type() == "touch")
}

fn place(event: &PointerEvent) -> (f64, f64) {
    (f64::from(event.client_x()), f64::from(event.client_y()))
}

/// Returns the index of the table line that an event is on.
fn line_of(event: &Event) -> Option<usize> {
    let target = event.target()?.dyn_into::<Element>().ok()?;
    let row = target.closest(".row[aria-selected]").ok().flatten()?;
    row.id().strip_prefix("line-")?.parse().ok()
}
