//! Metadata of groups: attributes of HDF5 groups and of the root, `__metadata__` of safetensors.

use std::collections::HashSet;

use statelens_checkpoint::{Checkpoint, Key, Leaf, Text, ValueId, order};
use statelens_values::Json;

use crate::attribute_text;

/// Returns the containers with attributes, including the root, by flat key. The root's key is
/// empty.
pub fn groups_with_attributes(checkpoint: &Checkpoint) -> Vec<(Text, ValueId)> {
    let groups = containers(checkpoint).filter(|id| !checkpoint.raw_attributes(*id).is_empty());
    let keys = checkpoint.flat_keys(&groups.collect());
    let mut groups: Vec<(Text, ValueId)> = keys.into_iter().map(|(id, key)| (key, id)).collect();
    order::by(&mut groups, |one, other| one.0.cmp(&other.0));
    groups
}

/// Returns the container with this flat key in the form of a leaf; the root for the empty key.
pub fn group(checkpoint: &Checkpoint, key: &str) -> Option<Leaf> {
    let (id, flat) = match key {
        "" => (checkpoint.root(), Text::from("")),
        key => {
            let keys = checkpoint.flat_keys(&containers(checkpoint).collect());
            let found = keys.into_iter().filter(|(_, flat)| flat.to_lossy() == key);
            let (id, flat) = found.min_by_key(|(id, _)| id.0)?;
            (id, flat)
        }
    };
    checkpoint.value(id).is_container().then(|| Leaf {
        key: Key::default(),
        flat,
        id,
        target: id,
        alias_of: None,
        outside_state: false,
    })
}

fn containers(checkpoint: &Checkpoint) -> impl Iterator<Item = ValueId> {
    let all = (0..).map(ValueId).zip(checkpoint.values());
    all.filter(|(_, value)| value.is_container()).map(|(id, _)| id)
}

/// Writes the field `groups`: an object with the attributes of each group, by key.
pub fn groups_json(json: &mut Json, checkpoint: &Checkpoint) {
    let groups = groups_with_attributes(checkpoint);
    if groups.is_empty() {
        return;
    }
    let mut written = HashSet::new();
    json.name("groups").object(|json| {
        for (key, id) in &groups {
            if written.insert(key) {
                let json = json.name(&key.to_lossy());
                json.object(|json| attributes_json(json, checkpoint, *id));
            }
        }
    });
}

/// Writes the attributes of a value as fields.
pub fn attributes_json(json: &mut Json, checkpoint: &Checkpoint, id: ValueId) {
    for (name, text) in checkpoint.raw_attributes(id) {
        json.name(&name.to_lossy()).text(text);
    }
    for (name, id) in checkpoint.named_attributes(checkpoint.resolve(id)) {
        json.name(&name.to_lossy()).str(&attribute_text(checkpoint, id));
    }
}
