//! Python attributes of dicts and tensors, which most formats have no place for.

use std::collections::HashSet;

use statelens_checkpoint::{Checkpoint, Loss, LossCode, Text, Value, ValueId, order};

/// Returns the flat keys of the values that have Python attributes, sorted.
pub(crate) fn owners(source: &Checkpoint, of: impl Fn(ValueId, &Value) -> bool) -> Vec<Text> {
    let owners: HashSet<ValueId> = (0..)
        .map(ValueId)
        .zip(source.values())
        .filter(|(id, value)| source.attributes(*id).is_some() && of(*id, value))
        .map(|(id, _)| id)
        .collect();
    if owners.is_empty() {
        return Vec::new();
    }
    let mut keys: Vec<Text> = source.flat_keys(&owners).into_values().collect();
    order::natural(&mut keys);
    keys
}

/// Returns the loss of the attributes of these values; `None` if they have none.
pub(crate) fn left_out(source: &Checkpoint, of: impl Fn(&Value) -> bool) -> Option<Loss> {
    let is_tensor = |value: &Value| matches!(value, Value::Tensor(_) | Value::Array(_));
    let tensors = owners(source, |_, value| of(value) && is_tensor(value));
    let mut keys = owners(source, |_, value| of(value) && !is_tensor(value));
    let what = match (keys.is_empty(), tensors.is_empty()) {
        (true, true) => return None,
        (false, true) => "Python attributes of dicts (`_metadata`) are left out",
        (true, false) => "Python attributes of tensors are left out",
        (false, false) => "Python attributes of dicts and tensors are left out",
    };
    keys.extend(tensors);
    order::natural(&mut keys);
    Some(Loss {
        code: LossCode::Attributes,
        keys: keys.iter().map(Text::to_string).collect(),
        what: what.into(),
        why: "The format has no place for them.".into(),
        harmless: true,
    })
}

/// Returns the loss of tensors that are attributes of other tensors, such as the scales of
/// bitsandbytes; `None` without such tensors.
pub(crate) fn tensors_left_out(source: &Checkpoint) -> Option<Loss> {
    let keys = owners(source, |id, _| !source.attribute_tensors(id).is_empty());
    (!keys.is_empty()).then(|| Loss {
        code: LossCode::TensorAttributes,
        keys: keys.iter().map(Text::to_string).collect(),
        what: "tensors that are Python attributes of these tensors are left out".into(),
        why: "They have no key.".into(),
        harmless: false,
    })
}
