//! Metadata of groups: attributes of HDF5 groups and of the root, `__metadata__` of safetensors.

use std::collections::HashSet;

use serde::Serialize;
use statelens_checkpoint::{Checkpoint, Key, Leaf, Text, ValueId, order};
use statelens_values::{Json, object};

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

/// The attributes of a value, by name.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Attributes(#[serde(with = "object")] Vec<(String, Text)>);

impl Attributes {
    /// Returns the attributes of a value.
    pub fn of(checkpoint: &Checkpoint, id: ValueId) -> Self {
        let raw = checkpoint.raw_attributes(id).iter();
        let raw = raw.map(|(name, text)| (name.to_lossy().into_owned(), text.clone()));
        let named = checkpoint.named_attributes(checkpoint.resolve(id)).into_iter();
        let named = named.map(|(name, id)| {
            (name.to_lossy().into_owned(), Text::from(attribute_text(checkpoint, id).as_str()))
        });
        Self(raw.chain(named).collect())
    }
}

/// The attributes of each container that has some, by its key.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(transparent)]
pub struct GroupAttributes(#[serde(with = "object")] Vec<(String, Attributes)>);

impl GroupAttributes {
    /// Returns the attributes of containers; of two with one key, those of the first.
    pub fn of(checkpoint: &Checkpoint) -> Self {
        let mut known = HashSet::new();
        let mut groups = Vec::new();
        for (key, id) in groups_with_attributes(checkpoint) {
            let key = key.to_lossy().into_owned();
            if known.insert(key.clone()) {
                groups.push((key, Attributes::of(checkpoint, id)));
            }
        }
        Self(groups)
    }

    /// Returns whether no container has attributes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes the field `groups`, if there are any.
    pub fn write(&self, json: &mut Json) {
        if !self.is_empty() {
            json.name("groups").value(self);
        }
    }
}
