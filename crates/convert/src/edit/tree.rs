//! Builds the tree for new keys.

use std::collections::{HashMap, HashSet};

use statelens_checkpoint::{
    Checkpoint, Dict, DictKey, Error, KeyPart, List, Result, Set, Text, Tuple, TupleClass, Value,
    ValueId, order,
};

use super::keys::{KeyStep, NewKey};

struct NewContainer {
    /// The container of the source that it was, if any.
    old: Option<ValueId>,
    /// Whether it has the same place as in the source.
    in_place: bool,
    children: Vec<Child>,
}

struct Child {
    key: DictKey,
    text: String,
    led_to: LedTo,
}

/// The target of a step, by number: a container, or the leaf of a key.
#[derive(Clone, Copy)]
enum LedTo {
    Node(usize),
    Leaf(usize),
}

/// The type of a step: keys that look alike may differ in it.
#[derive(PartialEq, Eq, Hash)]
enum StepType {
    Text,
    Other,
    Index,
}

/// Returns the checkpoint with its leaves at the places of their new keys, in the order of the
/// keys.
pub(super) fn moved(checkpoint: &Checkpoint, keys: &[NewKey]) -> Result<Checkpoint> {
    check_names(keys)?;
    let nodes = grow(keys)?;
    let mut builder = checkpoint.edit();
    let ids = identities(checkpoint, &nodes);
    let above: HashSet<ValueId> = keys.iter().flat_map(|key| &key.above).copied().collect();
    let kept: HashSet<ValueId> = ids.iter().flatten().copied().collect();
    check_links(checkpoint, |id| above.contains(&id) && !kept.contains(&id))?;
    let mut places = Vec::with_capacity(nodes.len());
    for id in ids {
        places.push(match id {
            Some(id) => id,
            None => builder.push(Value::None)?,
        });
    }
    // The remains of dissolved containers would still claim their values.
    for id in above.difference(&kept) {
        if let Some(value) = builder.value_mut(*id) {
            *value = Value::None;
        }
    }
    for (node, place) in nodes.iter().zip(&places) {
        let children = node.children.iter().map(|child| match child.led_to {
            LedTo::Node(index) => places[index],
            LedTo::Leaf(index) => keys[index].leaf.id,
        });
        let children: Vec<ValueId> = children.collect();
        let value = container(node.old.map(|old| checkpoint.value(old)), &node.children, children);
        if let Some(slot) = builder.value_mut(*place) {
            *slot = value;
        }
    }
    for key in keys.iter().filter(|key| key.leaf.outside_state) {
        builder.set_outside_state(key.leaf.id, true);
    }
    for key in keys.iter().filter(|key| key.changed) {
        if checkpoint.stored_key(key.leaf.id).is_some() {
            builder.set_stored_key(key.leaf.id, Text::from(key.text.as_str()));
        }
    }
    let Checkpoint { format, files, findings, .. } = checkpoint;
    builder.finish(places[0], format.clone(), files.clone(), findings.clone())
}

/// Fails if two leaves would have the same key, or one an empty key.
fn check_names(keys: &[NewKey]) -> Result<()> {
    let mut names: HashMap<&str, &NewKey> = HashMap::with_capacity(keys.len());
    for key in keys {
        if key.changed && key.text.is_empty() {
            return Err(Error::refused(format!("nothing is left of the key `{}`", key.leaf.flat))
                .advice("Let the replacement keep something of it, or exclude it."));
        }
        if let Some(other) = names.insert(&key.text, key)
            && (key.changed || other.changed)
        {
            return Err(Error::refused(format!(
                "`{}` and `{}` would both become `{}`",
                other.leaf.flat, key.leaf.flat, key.text
            ))
            .advice("Exclude one of them, or give them names that differ."));
        }
    }
    Ok(())
}

/// Returns the containers of the new tree, the root first.
fn grow(keys: &[NewKey]) -> Result<Vec<NewContainer>> {
    let root = keys.iter().find_map(|key| key.above.first().copied());
    let mut nodes = vec![NewContainer { old: root, in_place: true, children: Vec::new() }];
    let mut known: HashMap<(usize, StepType, String), (LedTo, usize)> = HashMap::new();
    for (index, key) in keys.iter().enumerate() {
        let steps = key.steps();
        let mut node = 0;
        let mut in_place = true;
        for (depth, step) in steps.iter().enumerate() {
            let part = key.kept_part(step);
            let name = match part {
                Some(KeyPart::Index(_)) => StepType::Index,
                Some(part) if !matches!(part.dict_key(), Some(DictKey::Str(_))) => StepType::Other,
                Some(_) | None => StepType::Text,
            };
            in_place &= part.is_some() && step.from == Some(depth) && step.into == Some(depth + 1);
            let last = depth + 1 == steps.len();
            let at = (node, name, step.text.to_owned());
            let led_to = match known.get(&at) {
                Some((LedTo::Node(below), _)) if !last => {
                    node = *below;
                    continue;
                }
                Some((_, other)) => return Err(both(&keys[*other], key)),
                None if last => LedTo::Leaf(index),
                None => {
                    let old = step.into.map(|into| key.above[into]);
                    nodes.push(NewContainer { old, in_place, children: Vec::new() });
                    LedTo::Node(nodes.len() - 1)
                }
            };
            known.insert(at, (led_to, index));
            let child = Child { key: dict_key(key, step), text: step.text.to_owned(), led_to };
            nodes[node].children.push(child);
            if let LedTo::Node(below) = led_to {
                node = below;
            }
        }
    }
    Ok(nodes)
}

fn both(one: &NewKey, other: &NewKey) -> Error {
    let (leaf, below) = if one.text.len() < other.text.len() { (one, other) } else { (other, one) };
    let was = |key: &NewKey| match key.changed && key.text.as_str() != key.leaf.flat.to_lossy() {
        true => format!(" (`{}` in the source)", key.leaf.flat),
        false => String::new(),
    };
    Error::refused(format!(
        "`{}`{} would be a value and also contain `{}`{}",
        leaf.text,
        was(leaf),
        below.text,
        was(below)
    ))
    .advice("Rename or exclude one of them.")
}

/// Returns the dict key for a step. Numbers remain numbers if the dict had such keys.
fn dict_key(key: &NewKey, step: &KeyStep<'_>) -> DictKey {
    if let Some(kept) = key.kept_part(step).and_then(KeyPart::dict_key) {
        return kept.clone();
    }
    if let Some(DictKey::Int(_)) = key.old_part(step).and_then(KeyPart::dict_key)
        && let Ok(number) = step.text.parse::<i64>()
        && number.to_string() == step.text
    {
        return DictKey::Int(number.into());
    }
    DictKey::from(step.text)
}

/// Returns the value of the source for each container of the new tree, each used at most once.
/// Containers that kept their place have priority.
fn identities(checkpoint: &Checkpoint, nodes: &[NewContainer]) -> Vec<Option<ValueId>> {
    let mut taken = HashSet::new();
    let mut ids = vec![None; nodes.len()];
    for in_place in [true, false] {
        for (node, id) in nodes.iter().zip(&mut ids) {
            if let Some(old) = node.old
                && node.in_place == in_place
                && checkpoint.value(old).is_container()
                && taken.insert(old)
            {
                *id = Some(old);
            }
        }
    }
    ids
}

/// Fails if a value to keep is the same object as a container that is dissolved.
fn check_links(checkpoint: &Checkpoint, gone: impl Fn(ValueId) -> bool) -> Result<()> {
    let mut seen = vec![false; checkpoint.values().len()];
    let mut stack = vec![checkpoint.root()];
    let mut lost = HashSet::new();
    while let Some(id) = stack.pop() {
        match seen.get_mut(id.0 as usize) {
            Some(seen) if !*seen => *seen = true,
            _ => continue,
        }
        if let Value::Link(target) = checkpoint.value(id)
            && gone(*target)
        {
            lost.extend([id, *target]);
            break;
        }
        stack.extend(checkpoint.attributes(id));
        stack.extend(checkpoint.value(id).children());
    }
    if lost.is_empty() {
        return Ok(());
    }
    let mut names: Vec<String> =
        checkpoint.flat_keys(&lost).into_values().map(|key| format!("`{key}`")).collect();
    order::natural(&mut names);
    Err(Error::refused(format!(
        "the new keys would split a dict or list that is referenced from two places: {}",
        names.join(", ")
    ))
    .advice("Exclude one of them."))
}

/// Returns a container of the same kind, with other children.
fn container(old: Option<&Value>, children: &[Child], ids: Vec<ValueId>) -> Value {
    let counted = || children.iter().enumerate().all(|(at, child)| child.text == at.to_string());
    match old {
        Some(Value::List(List { class, .. })) if counted() => {
            Value::List(List { class: *class, items: ids })
        }
        Some(Value::Set(Set { frozen, .. })) if counted() => {
            Value::Set(Set { frozen: *frozen, items: ids })
        }
        Some(Value::Tuple(Tuple { class, items })) if counted() => {
            let class = if items.len() == ids.len() { class.clone() } else { TupleClass::Tuple };
            Value::Tuple(Tuple { class, items: ids })
        }
        old => {
            let class = match old {
                Some(Value::Dict(dict)) => dict.class.clone(),
                _ => Dict::default().class,
            };
            let entries = children.iter().map(|child| child.key.clone()).zip(ids).collect();
            Value::Dict(Dict { class, entries })
        }
    }
}
