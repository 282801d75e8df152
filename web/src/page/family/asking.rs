//! Changing what is asked about the family.

use crate::page::controls::change;
use crate::page::model::actor::Actor;

/// Changes what is asked about the family.
pub(super) fn set(
    actor: &Actor,
    with: impl FnOnce(&mut crate::protocol::family::FamilyRequest) + 'static,
) {
    change(actor, move |convert| {
        with(&mut convert.options.family);
        convert.acknowledged.clear();
    });
}
