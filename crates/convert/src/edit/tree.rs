//! Builds the tree for new keys.

use std::collections::{HashMap, HashSet};

use statelens_checkpoint::{
    Checkpoint, Dict, DictClass, DictKey, Error, Key, KeyPart, List, Result, Set, Text, Tuple,
    TupleClass, Value, ValueId, order,
};

use super::keys::{KeyStep, NewKey};
use super::versions::{self, MovedDict};
use crate::Edit;

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
/// keys. `source` has the keys that `edit` left out as well.
pub(super) fn moved(
    edit: &Edit,
    source: &Checkpoint,
    checkpoint: &Checkpoint,
    keys: &[NewKey],
) -> Result<Checkpoint> {
    check_names(keys)?;
    let (nodes, paths) = grow(keys)?;
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
    let homes = homes(checkpoint, keys, &paths, &places);
    // An object is no longer one if its contents become those of the root.
    let is_plain = |id: ValueId| match checkpoint.value(id) {
        Value::Dict(dict) => !matches!(dict.class, DictClass::Other(_) | DictClass::Object(_)),
        _ => false,
    };
    let itself: HashMap<usize, ValueId> = homes
        .iter()
        .filter(|home| home.whole && !kept.contains(&home.id) && is_plain(home.id))
        .map(|home| (home.node, home.id))
        .collect();
    for (index, (node, place)) in nodes.iter().zip(&places).enumerate() {
        let children = node.children.iter().map(|child| match child.led_to {
            LedTo::Node(index) => places[index],
            LedTo::Leaf(index) => keys[index].leaf.id,
        });
        let children: Vec<ValueId> = children.collect();
        let old = itself.get(&index).copied().or(node.old);
        let value = container(old.map(|old| checkpoint.value(old)), &node.children, children);
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
    let with_attributes = homes.into_iter().filter(|home| checkpoint.attributes(home.id).is_some());
    let dicts: Vec<MovedDict> = with_attributes
        .map(|home| MovedDict {
            id: home.id,
            old_start: home.old_start,
            place: places[home.node],
            new_start: home.new_start,
            whole: home.whole,
        })
        .collect();
    let left_out = match dicts.is_empty() {
        true => Vec::new(),
        false => versions::follow(&mut builder, edit, source, checkpoint, keys, &dicts)?,
    };
    let Checkpoint { format, files, findings, .. } = checkpoint;
    let findings = findings.iter().cloned().chain(left_out).collect();
    builder.finish(places[0], format.clone(), files.clone(), findings)
}

/// A dict of the source, and its new container: the dict itself if it is kept, else the container
/// that holds all its leaves.
struct Home {
    id: ValueId,
    /// The start of its keys, and of the keys in the new container.
    old_start: String,
    new_start: String,
    node: usize,
    /// Whether the dict is kept, or the new container has no other leaves.
    whole: bool,
}

/// Returns the new containers of the dicts above the leaves, the outermost first. `paths` are the
/// containers above each leaf, `places` the values of the containers.
fn homes(
    checkpoint: &Checkpoint,
    keys: &[NewKey],
    paths: &[Vec<usize>],
    places: &[ValueId],
) -> Vec<Home> {
    let is_dict = |id: ValueId| matches!(checkpoint.value(id), Value::Dict(_));
    let mut counts = vec![0; places.len()];
    // The nodes above a node, which has its own index last.
    let mut above: HashMap<usize, (usize, &[usize])> = HashMap::new();
    // For each dict: its depth, one of its keys, the common path, and the number of its leaves.
    let mut found: HashMap<ValueId, (usize, usize, &[usize], usize)> = HashMap::new();
    let mut order = Vec::new();
    for (index, (key, path)) in keys.iter().zip(paths).enumerate() {
        for (at, node) in path.iter().enumerate() {
            counts[*node] += 1;
            above.entry(*node).or_insert_with(|| (index, &path[..=at]));
        }
        for (depth, id) in key.above.iter().enumerate().filter(|(_, id)| is_dict(**id)) {
            let (.., common, count) = found.entry(*id).or_insert_with(|| {
                order.push(*id);
                (depth, index, &path[..], 0)
            });
            let alike = common.iter().zip(path).take_while(|(one, other)| one == other).count();
            *common = &common[..alike];
            *count += 1;
        }
    }
    let kept: HashMap<ValueId, usize> = places.iter().copied().zip(0..).collect();
    let mut homes: Vec<(usize, Home)> = Vec::with_capacity(order.len());
    for id in order {
        let Some((depth, index, common, count)) = found.get(&id).copied() else { continue };
        let itself = kept.get(&id).and_then(|node| above.get(node)).copied();
        let (at, path) = itself.unwrap_or((index, common));
        let Some(node) = path.last().copied() else { continue };
        let old = Key { parts: keys[index].leaf.key.parts[..depth].to_vec() };
        let old_start = match depth {
            0 => String::new(),
            _ => format!("{}.", old.flat().to_lossy()),
        };
        let end = path.len().checked_sub(2).and_then(|dot| keys[at].dots.get(dot));
        let new_start = end.map_or("", |dot| &keys[at].text[..=dot.at]).to_owned();
        let whole = itself.is_some() || counts[node] == count;
        homes.push((depth, Home { id, old_start, new_start, node, whole }));
    }
    homes.sort_by_key(|(depth, _)| *depth);
    homes.into_iter().map(|(_, home)| home).collect()
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

/// Returns the containers of the new tree, the root first, and those above each leaf.
fn grow(keys: &[NewKey]) -> Result<(Vec<NewContainer>, Vec<Vec<usize>>)> {
    let root = keys.iter().find_map(|key| key.above.first().copied());
    let mut nodes = vec![NewContainer { old: root, in_place: true, children: Vec::new() }];
    let mut paths = Vec::with_capacity(keys.len());
    let mut known: HashMap<(usize, StepType, String), (LedTo, usize)> = HashMap::new();
    for (index, key) in keys.iter().enumerate() {
        let steps = key.steps();
        let mut node = 0;
        let mut path = vec![0];
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
                    path.push(node);
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
                path.push(node);
            }
        }
        paths.push(path);
    }
    Ok((nodes, paths))
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
