//! Recovery after the worker has crashed: a new worker opens the same checkpoint again, with the
//! same selection.

use std::rc::Rc;

use yew::prelude::*;

use crate::page::model::actor::Actor;
use crate::page::model::{PageModel, Screen};

/// A second crash within this number of milliseconds would repeat, so there is no further attempt.
const REPEAT_WITHIN: f64 = 10_000.0;

impl PageModel {
    /// Prepares to open the checkpoint again. Returns false if none was open or the last crash was
    /// too recent.
    pub(crate) fn revive(&mut self) -> bool {
        let now = js_sys::Date::now();
        let soon = now - std::mem::replace(&mut self.stopped_at, now) < REPEAT_WITHIN;
        let is_open = matches!(self.screen, Screen::Work | Screen::Compare);
        let recoverable = is_open && !soon && !(self.files.is_empty() && self.address.is_none());
        let Some(work) = self.work.as_ref().filter(|_| recoverable) else { return false };
        let wrote = match self.convert.as_ref().is_some_and(|convert| convert.is_running()) {
            true => " The last output is incomplete.",
            false => "",
        };
        let name = &work.opened.name;
        let text = format!(
            "The reader stopped: a defect in Statelens, or too little memory. It was restarted, and {name} is open again at the same place.{wrote}"
        );
        self.pending_link = Some(Rc::new(self.link()));
        self.revived = Some(text.into());
        self.crashed = true;
        true
    }
}

/// Opens the checkpoint again after a crash.
#[hook]
pub fn use_recovery(model: &UseReducerHandle<PageModel>, actor: &Actor) {
    let (actor, model) = (actor.clone(), model.clone());
    use_effect_with(model.crashed, move |crashed| {
        if *crashed {
            match &model.address {
                Some(address) => actor.open_address_now(address, model.agreed),
                None => {
                    let (files, times) = (model.files.as_ref().clone(), model.times);
                    actor.open_within(files, model.requested, times, model.read_as);
                }
            }
        }
    });
}
