//! Compares the metadata of leaves and groups: attributes of HDF5, `__metadata__` of safetensors,
//! Python attributes of dicts and tensors. Only files of the same format are compared, because other
//! formats have none or different ones.

use std::collections::{HashMap, HashSet};

use statelens_checkpoint::{
    Checkpoint, Layout, Leaf, NOT_COMPARED, STORED_TYPE, Text, Value, ValueId, has_enum, order,
};
use statelens_describe::{attribute_text, groups_with_attributes};

use super::pairs::same_value;
use super::{AttributePair, ComparisonReport, DiffOptions, DifferenceKind, Side};

/// Compares the attributes at the common keys, and returns the tensors in them, which remain to be
/// compared. The differences come after those of leaves.
pub(super) fn attributes(
    [(left, of_left), (right, of_right)]: [Side<'_>; 2],
    options: &DiffOptions,
    report: &mut ComparisonReport,
) -> Vec<AttributePair> {
    if left.format.id != right.format.id {
        return Vec::new();
    }
    let behind = of_left.len() + of_right.len();
    let pairs = of_python(left, right, behind, report);
    if !left.format.has_user_attributes() {
        return pairs;
    }
    if !has_own_attributes(left) && !has_own_attributes(right) {
        return pairs;
    }
    let (left_places, right_places) = (places(left, of_left), places(right, of_right));
    let has_some = |of: &Checkpoint, id: ValueId| !of.raw_attributes(id).is_empty();
    let is_wanted = |(key, id): &(&Text, &ValueId)| {
        right_places.get(*key).is_some_and(|other| has_some(left, **id) || has_some(right, *other))
    };
    let mut keys: Vec<&Text> = left_places.iter().filter(is_wanted).map(|(key, _)| key).collect();
    order::natural(&mut keys);
    for key in keys {
        let (one, two) = (own(left, left_places[key]), own(right, right_places[key]));
        let mut names: Vec<&Text> = one.keys().chain(two.keys()).copied().collect();
        order::natural(&mut names);
        names.dedup();
        for name in names {
            let (one, two) = (one.get(name), two.get(name));
            let [left, right] = [one, two].map(|value| value.map(|(text, _)| *text));
            let text = |value: Option<&Text>| value.map_or("missing".into(), Text::to_string);
            let unread = left.into_iter().chain(right).find(|value| is_not_compared(value));
            let what = match (unread, one, two) {
                (Some(why), ..) => DifferenceKind::Unreadable { why: why.to_string() },
                _ if left != right => {
                    DifferenceKind::Value { left: text(left), right: text(right) }
                }
                (_, Some((_, left)), Some((_, right)))
                    if left != right && !options.ignore_dtype =>
                {
                    DifferenceKind::Type { left: text(*left), right: text(*right) }
                }
                _ => continue,
            };
            report.differ(behind, key, &format!("@{name}"), what);
        }
    }
    pairs
}

/// Returns whether a checkpoint has metadata that [`attributes`] compares and that a manifest does
/// not have. It has the types of values, the names in enumerations, and attributes of tensors.
pub(crate) fn has_attributes(checkpoint: &Checkpoint) -> bool {
    let has_own = |id: ValueId| {
        checkpoint.format.has_user_attributes()
            && own(checkpoint, id).keys().any(|name| !name.as_bytes().starts_with(b"("))
            || checkpoint.tensor_of(id).is_none() && !checkpoint.named_attributes(id).is_empty()
    };
    (0..checkpoint.values().len() as u32).map(ValueId).any(has_own)
}

/// Returns whether any value has attributes other than those of Python.
fn has_own_attributes(checkpoint: &Checkpoint) -> bool {
    let mut all = (0..checkpoint.values().len() as u32).map(ValueId);
    all.any(|id| !checkpoint.raw_attributes(id).is_empty())
}

/// Compares the Python attributes of dicts and tensors that both sides have, except for the
/// elements of tensors in them.
fn of_python(
    left: &Checkpoint,
    right: &Checkpoint,
    behind: usize,
    report: &mut ComparisonReport,
) -> Vec<AttributePair> {
    let mut pairs = Vec::new();
    let [left_owners, right_owners] = [left, right].map(|of| {
        let owners: HashSet<ValueId> = (0..of.values().len() as u32)
            .map(ValueId)
            .filter(|id| of.attributes(*id).is_some())
            .collect();
        owners
    });
    if left_owners.is_empty() && right_owners.is_empty() {
        return pairs;
    }
    let (left_places, right_places) = (values(left), values(right));
    let (mut keys, mut seen) = (Vec::new(), HashSet::new());
    for (places, owners) in [(&left_places, &left_owners), (&right_places, &right_owners)] {
        let owned = places.iter().filter(|(_, id)| owners.contains(id)).map(|(key, _)| key);
        keys.extend(owned.filter(|key| seen.insert((*key).clone())));
    }
    order::natural(&mut keys);
    for key in keys {
        let (Some(one), Some(two)) = (left_places.get(key), right_places.get(key)) else {
            continue;
        };
        let own = (layout(left, *one), layout(right, *two));
        let (one, two) = (set_on(left, *one), set_on(right, *two));
        let mut names: Vec<&Text> = one.keys().chain(two.keys()).copied().collect();
        order::natural(&mut names);
        names.dedup();
        for name in names {
            let (one, two) = (one.get(name), two.get(name));
            let name = format!("@{name}");
            if let (Some(one), Some(two)) = (one, two) {
                let mut inside = tensors(left, *one, right, *two);
                // A wrapper has the tensor that it wraps as an attribute.
                inside.retain(|(_, one, two)| (layout(left, *one), layout(right, *two)) != own);
                pairs.extend(
                    inside.into_iter().map(|(path, one, two)| {
                        (behind, key.clone(), name.clone() + &path, one, two)
                    }),
                );
                if let Some((path, one, two)) = first_difference(left, *one, right, *two) {
                    let what = DifferenceKind::Value {
                        left: attribute_text(left, one),
                        right: attribute_text(right, two),
                    };
                    report.differ(behind, key, &format!("{name}{path}"), what);
                }
                continue;
            }
            let text = |of, id: Option<&ValueId>| {
                id.map_or_else(|| "missing".into(), |id| attribute_text(of, *id))
            };
            let what = DifferenceKind::Value { left: text(left, one), right: text(right, two) };
            report.differ(behind, key, &name, what);
        }
    }
    pairs
}

fn layout(checkpoint: &Checkpoint, id: ValueId) -> Option<&Layout> {
    checkpoint.tensor_of(id).map(|(_, tensor)| &tensor.layout)
}

/// Returns the tensors of the same shape at the same places of two values, each with the rest of
/// its key.
fn tensors(
    left: &Checkpoint,
    one: ValueId,
    right: &Checkpoint,
    two: ValueId,
) -> Vec<(String, ValueId, ValueId)> {
    let (mut open, mut seen, mut found) =
        (vec![(String::new(), one, two)], HashSet::new(), Vec::new());
    while let Some((path, one, two)) = open.pop() {
        let (one, two) = (left.resolve(one), right.resolve(two));
        if !seen.insert((one, two)) {
            continue;
        }
        if let (Some((_, a)), Some((_, b))) = (left.tensor_of(one), right.tensor_of(two)) {
            if a.shape == b.shape {
                found.push((path, one, two));
            }
            continue;
        }
        let (value, other) = (left.value(one), right.value(two));
        let below = value.children().into_iter().zip(other.children()).enumerate();
        open.extend(below.map(|(at, (one, two))| {
            let step = match value {
                Value::Dict(dict) => dict.entries.get(at).map(|(key, _)| key.to_string()),
                _ => None,
            };
            (format!("{path}.{}", step.unwrap_or_else(|| at.to_string())), one, two)
        }));
    }
    found
}

/// Returns the first difference of two values: the rest of its key, and its description.
/// Iterative, because values may contain themselves.
fn first_difference(
    left: &Checkpoint,
    one: ValueId,
    right: &Checkpoint,
    two: ValueId,
) -> Option<(String, ValueId, ValueId)> {
    let options = DiffOptions::default();
    let (mut open, mut seen) = (vec![(String::new(), one, two)], HashSet::new());
    while let Some((path, one, two)) = open.pop() {
        let (one, two) = (left.resolve(one), right.resolve(two));
        if !seen.insert((one, two)) || same_value(left, one, right, two, &options) {
            continue;
        }
        let (Value::Dict(dict), Value::Dict(other)) = (left.value(one), right.value(two)) else {
            return Some((path, one, two));
        };
        let pairs = || dict.entries.iter().zip(&other.entries);
        if dict.entries.len() != other.entries.len() || pairs().any(|(a, b)| a.0 != b.0) {
            return Some((path, one, two));
        }
        open.extend(pairs().rev().map(|(a, b)| (format!("{path}.{}", a.0), a.1, b.1)));
    }
    None
}

/// Returns all values of the tree by key.
fn values(checkpoint: &Checkpoint) -> HashMap<Text, ValueId> {
    let all: HashSet<ValueId> = (0..checkpoint.values().len() as u32).map(ValueId).collect();
    checkpoint.flat_keys(&all).into_iter().map(|(id, key)| (key, id)).collect()
}

/// Returns the Python attributes of a value by name.
fn set_on(checkpoint: &Checkpoint, id: ValueId) -> HashMap<&Text, ValueId> {
    checkpoint.named_attributes(id).into_iter().collect()
}

/// Returns all leaves, the root, and the containers with attributes, by key.
fn places(checkpoint: &Checkpoint, leaves: &[Leaf]) -> HashMap<Text, ValueId> {
    let leaves = leaves.iter().map(|leaf| (leaf.flat.clone(), leaf.id));
    let root = (Text::from(""), checkpoint.root());
    leaves.chain([root]).chain(groups_with_attributes(checkpoint)).collect()
}

/// Returns whether a value is the reason why the value can't be compared.
fn is_not_compared(value: &Text) -> bool {
    value.as_bytes().starts_with(NOT_COMPARED.as_bytes())
}

/// Returns the attributes of a value with their types, without those that describe its storage.
fn own(checkpoint: &Checkpoint, id: ValueId) -> HashMap<&Text, (&Text, Option<&Text>)> {
    let types = checkpoint.attribute_types(id).iter().map(|(name, of)| (name, of));
    let types: HashMap<&Text, &Text> = types.collect();
    // The dtype of an enum, also in a record, does not have its names.
    let counts = |name: &Text, value: &Text| {
        !name.as_bytes().starts_with(b"(")
            || *name == STORED_TYPE
            || *name == "(datatype)" && has_enum(&value.to_lossy())
    };
    let all = checkpoint.raw_attributes(id).iter();
    all.filter(|(name, value)| counts(name, value))
        .map(|(name, value)| (name, (value, types.get(name).copied())))
        .collect()
}
