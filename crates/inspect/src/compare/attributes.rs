//! Compares the metadata of leaves and groups: attributes of HDF5, `__metadata__` of safetensors.
//! Only files of the same format are compared, because other formats have none or different ones.

use std::collections::HashMap;

use statelens_checkpoint::{Checkpoint, Text, ValueId, order};

use super::{ComparisonReport, DifferenceKind};
use crate::groups_with_attributes;

/// Formats whose attributes are the user's, not those of the format itself.
const FORMATS: [&str; 4] = ["hdf5", "keras", "keras-weights", "safetensors"];

/// Compares the attributes at the common keys. The differences come after those of leaves.
pub(super) fn attributes(left: &Checkpoint, right: &Checkpoint, report: &mut ComparisonReport) {
    let format = left.format.id;
    if format != right.format.id || !FORMATS.contains(&format) {
        return;
    }
    let (left_places, right_places) = (places(left), places(right));
    let behind = left.leaves().len() + right.leaves().len();
    let mut keys: Vec<&Text> =
        left_places.keys().filter(|key| right_places.contains_key(*key)).collect();
    order::natural(&mut keys);
    for key in keys {
        let (one, two) = (own(left, left_places[key]), own(right, right_places[key]));
        let mut names: Vec<&Text> = one.keys().chain(two.keys()).copied().collect();
        order::natural(&mut names);
        names.dedup();
        for name in names {
            let (one, two) = (one.get(name), two.get(name));
            if one != two {
                let text = |value: Option<&&Text>| {
                    value.map_or_else(|| "missing".into(), |value| value.to_string())
                };
                let what = DifferenceKind::Value { left: text(one), right: text(two) };
                report.differ(behind, key, &format!("@{name}"), what);
            }
        }
    }
}

/// Returns all leaves, the root, and the containers with attributes, by key.
fn places(checkpoint: &Checkpoint) -> HashMap<Text, ValueId> {
    let leaves = checkpoint.leaves().into_iter().map(|leaf| (leaf.flat, leaf.id));
    let root = (Text::from(""), checkpoint.root());
    leaves.chain([root]).chain(groups_with_attributes(checkpoint)).collect()
}

/// Returns the attributes of a value, without those that describe its storage.
fn own(checkpoint: &Checkpoint, id: ValueId) -> HashMap<&Text, &Text> {
    let all = checkpoint.raw_attributes(id).iter();
    all.filter(|(name, _)| !name.as_bytes().starts_with(b"("))
        .map(|(name, value)| (name, value))
        .collect()
}
