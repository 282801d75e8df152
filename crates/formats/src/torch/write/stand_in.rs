//! Substitutes for values that torch's safe loader would refuse.

use statelens_checkpoint::{Checkpoint, DType, Opaque, Text, ValueId};

use crate::object_text::{object_text, pathlib_text};

/// Returns whether torch has the dtype. It has no tensors of numpy's strings, records and dates.
pub(super) fn is_torch(dtype: &DType) -> bool {
    !matches!(dtype, DType::Numpy(_))
}

/// The substitute for an object whose class the loader would refuse.
pub(super) enum StandIn<'a> {
    /// Its attributes.
    Value(ValueId),
    /// Its items, if it was filled like a list.
    Items(&'a [ValueId]),
    /// Its entries, if it was filled like a dict.
    Entries(&'a [(ValueId, ValueId)]),
    /// Its representation in Python.
    Text(Text),
}

/// Returns the substitute for `opaque`, the value `id`.
pub(super) fn stand_in<'a>(source: &Checkpoint, id: ValueId, opaque: &'a Opaque) -> StandIn<'a> {
    if let Some(text) = pathlib_text(source, opaque) {
        return StandIn::Text(text);
    }
    if source.holds_tensor(id) {
        if let Some(state) = opaque.state.filter(|state| source.holds_tensor(*state)) {
            return StandIn::Value(state);
        }
        if !opaque.entries.is_empty() {
            return StandIn::Entries(&opaque.entries);
        }
        if !opaque.items.is_empty() {
            return StandIn::Items(&opaque.items);
        }
        return StandIn::Items(&opaque.args);
    }
    StandIn::Text(object_text(source, opaque))
}
