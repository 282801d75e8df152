//! Messages that wait until the rest of the program is there.

use std::cell::RefCell;
use std::rc::Rc;

use js_sys::Promise;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::{JsFuture, spawn_local};

use crate::messages::get;
use crate::protocol::{FromWorker, Posted, ToWorker};
use crate::worker::post_as;

/// What web/boot.js calls its promise that the rest of the program is there, as long as it is not.
const LATER: &str = "later";

/// What is done once all is there.
type Act = Box<dyn FnOnce()>;

/// What waits, in its order.
#[derive(Clone, Default)]
pub(super) struct HeldActs(Rc<RefCell<Vec<Act>>>);

impl HeldActs {
    /// Has a message answered: at once, or when all is there that it takes. What waits is answered in its
    /// order; what doesn't have to passes it.
    pub(super) fn pass(
        &self,
        posted: Posted<ToWorker>,
        data: JsValue,
        answer: impl FnOnce(Posted<ToWorker>, &JsValue) + 'static,
    ) {
        if is_first(&posted.message) || rest().is_none() {
            return answer(posted, &data);
        }
        if posted.message.begins_session() {
            // Says that it was heard: else another worker would be asked.
            let heard = FromWorker::Opening { doing: String::new(), keys: 0, read: 0, calls: 0 };
            post_as(posted.session, posted.job, &heard, &JsValue::UNDEFINED);
        }
        self.hold(move || answer(posted, &data));
    }

    /// Does something that takes all of the program, as soon as that is there.
    pub(super) fn hold(&self, act: impl FnOnce() + 'static) {
        let Some(rest) = rest() else { return act() };
        self.0.borrow_mut().push(Box::new(act));
        if self.0.borrow().len() > 1 {
            return;
        }
        let held = self.0.clone();
        spawn_local(async move {
            // It is asked for until it comes, but may be of another version.
            if let Err(error) = JsFuture::from(rest).await {
                wasm_bindgen::throw_val(error);
            }
            held.take().into_iter().for_each(|act| act());
        });
    }
}

/// The rest of the program, as long as it is not there.
fn rest() -> Option<Promise> {
    get(&js_sys::global(), LATER).dyn_into().ok()
}

/// Whether a message takes only what is there from the beginning.
fn is_first(message: &ToWorker) -> bool {
    matches!(
        message,
        ToWorker::Open { .. }
            | ToWorker::OpenAddress { .. }
            | ToWorker::Look { .. }
            | ToWorker::Inspect { .. }
            | ToWorker::Values { .. }
            | ToWorker::Allow { .. }
            | ToWorker::Close
    )
}
