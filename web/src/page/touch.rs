//! Picking rows by touch, where there is no key to hold: a finger that rests on a row picks it, and while
//! something is picked, a tap picks more.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use gloo_timers::callback::Timeout;
use wasm_bindgen::JsCast;
use web_sys::{Element, Event, MouseEvent, PointerEvent};
use yew::prelude::*;

use crate::page::model::actor::Actor;

/// Milliseconds that a finger rests, and pixels that it may move meanwhile.
const REST: u32 = 450;
const STILL: f64 = 10.0;

/// What a finger does on the table.
#[derive(Clone, Default)]
pub(super) struct Resting(Rc<RestingState>);

#[derive(Default)]
struct RestingState {
    timer: RefCell<Option<Timeout>>,
    from: Cell<(f64, f64)>,
    /// The finger that is on the table has picked already.
    picked: Cell<bool>,
}

impl PartialEq for Resting {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl Resting {
    /// Whether a click is the end of a touch that has picked already.
    pub(super) fn has_picked(&self) -> bool {
        self.0.picked.take()
    }

    /// What the element that has the rows listens to.
    pub(super) fn listeners(&self, actor: &Actor) -> [Callback<PointerEvent>; 3] {
        let (state, actor) = (self.0.clone(), actor.clone());
        let down = Callback::from(move |event: PointerEvent| {
            state.picked.set(false);
            let Some(line) = line_of(&event).filter(|_| event.pointer_type() == "touch") else {
                return;
            };
            state.from.set(place(&event));
            let (resting, actor) = (state.clone(), actor.clone());
            let timer = Timeout::new(REST, move || {
                resting.picked.set(true);
                actor.work(move |work| work.pick_alone(line));
            });
            state.timer.replace(Some(timer));
        });
        let state = self.0.clone();
        let moved = Callback::from(move |event: PointerEvent| {
            let ((left, top), (x, y)) = (state.from.get(), place(&event));
            if (x - left).hypot(y - top) > STILL {
                state.timer.replace(None);
            }
        });
        let state = self.0.clone();
        // The browser scrolls, or the finger is gone.
        let ended = Callback::from(move |_: PointerEvent| drop(state.timer.replace(None)));
        [down, moved, ended]
    }

    /// A finger that rests on a row opens no menu.
    pub(super) fn menu(&self) -> Callback<MouseEvent> {
        let state = self.0.clone();
        Callback::from(move |event: MouseEvent| {
            if state.picked.get() || state.timer.borrow().is_some() {
                event.prevent_default();
            }
        })
    }
}

/// Whether a click is a tap of a finger.
pub(super) fn is_tap(event: &MouseEvent) -> bool {
    event.dyn_ref::<PointerEvent>().is_some_and(|event| event.pointer_type() == "touch")
}

fn place(event: &PointerEvent) -> (f64, f64) {
    (f64::from(event.client_x()), f64::from(event.client_y()))
}

/// The line of the table that an event is on.
fn line_of(event: &Event) -> Option<usize> {
    let target = event.target()?.dyn_into::<Element>().ok()?;
    let row = target.closest(".row[aria-selected]").ok().flatten()?;
    row.id().strip_prefix("line-")?.parse().ok()
}
