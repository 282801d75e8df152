//! Names for the items of sets: they are matched by content, because their order is arbitrary.

use std::collections::{HashMap, HashSet};

use statelens_checkpoint::{Checkpoint, Leaf, Text, Value, ValueId};
use statelens_describe::text_of;

/// Returns the name by which each leaf is matched: its flat key, or for an item of a set, the key
/// of the set and the item.
pub(super) fn names(checkpoint: &Checkpoint, leaves: &[Leaf]) -> Vec<Text> {
    let flat = || leaves.iter().map(|leaf| leaf.flat.clone());
    // The parent of each value, and the set that each item belongs to.
    let mut parents: HashMap<ValueId, ValueId> = HashMap::new();
    let mut set_of: HashMap<ValueId, ValueId> = HashMap::new();
    let is_set = |value: &Value| matches!(value, Value::Set(set) if !set.items.is_empty());
    if !checkpoint.values().iter().any(is_set) {
        return flat().collect();
    }
    for (index, value) in (0..).zip(checkpoint.values()) {
        if value.is_container() {
            let id = ValueId(index);
            let children = value.children();
            if is_set(value) {
                set_of.extend(children.iter().map(|child| (*child, id)));
            }
            parents.extend(children.into_iter().map(|child| (child, id)));
        }
    }
    let sets: HashSet<ValueId> = set_of.values().copied().collect();
    let keys = checkpoint.flat_keys(&sets);
    let item_of = |leaf: &Leaf| {
        let mut at = leaf.id;
        loop {
            if let Some(set) = set_of.get(&at) {
                return Some((*set, at));
            }
            at = *parents.get(&at)?;
        }
    };
    let items: Vec<Option<(ValueId, ValueId)>> = leaves.iter().map(item_of).collect();
    let mut texts: HashMap<ValueId, Vec<String>> = HashMap::new();
    for (leaf, item) in leaves.iter().zip(&items) {
        if let Some((_, item)) = item {
            texts.entry(*item).or_default().push(text_of(checkpoint, leaf.target));
        }
    }
    let mut at_item: HashMap<ValueId, usize> = HashMap::new();
    let name = |(leaf, item): (&Leaf, &Option<(ValueId, ValueId)>)| {
        let flat = leaf.flat.clone();
        let Some((set, item)) = item else { return flat };
        let Some((key, texts)) = keys.get(set).zip(texts.get(item)) else { return flat };
        let key = key.to_lossy();
        match texts.as_slice() {
            [only] if leaf.id == *item => format!("{key}{{{only}}}").into(),
            texts => {
                let at = at_item.entry(*item).or_default();
                *at += 1;
                format!("{key}{{({})}}.{}", texts.join(", "), *at - 1).into()
            }
        }
    };
    leaves.iter().zip(&items).map(name).collect()
}
