//! Changing the request about the model family.

use crate::page::controls::change;
use crate::page::model::actor::Actor;

/// Changes the request about the model family, and withdraws acknowledged losses.
pub(super) fn set(
    actor: &Actor,
    with: impl FnOnce(&mut crate::family::message::FamilyRequest) + 'static,
) {
    change(actor, move |convert| {
        with(&mut convert.options.family);
        convert.acknowledged.clear();
    });
}
