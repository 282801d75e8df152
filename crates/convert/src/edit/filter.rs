//! Removes values.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet, VecDeque};

use statelens_checkpoint::{
    Builder, Checkpoint, Dict, Error, Finding, Grade, Leaf, List, Opaque, Result, Set, Setting,
    Text, Tuple, Value, ValueId, advice, listed, separator,
};

use crate::{Edit, Pattern};

/// Maximum number of names that an error lists.
const NAMED: usize = 12;

/// Returns for each value whether it is a leaf to keep or contains one.
///
/// A pattern of `select` that matches keys of a module's state dict selects only those; other
/// attributes of the module are selected by a pattern that matches nothing in the state dict.
pub(super) fn keep(edit: &Edit, source: &Checkpoint) -> Result<Vec<bool>> {
    let leaves = source.leaves();
    let flats: Vec<_> = leaves.iter().map(|leaf| leaf.flat.to_lossy()).collect();
    let dot = separator(source.format.traits.slash_keys, &mut flats.iter().map(|flat| &**flat));
    check_states(edit, &leaves, dot)?;
    let mut used = vec![false; edit.select.len()];
    let mut kept = vec![false; source.values().len()];
    let parents = super::parents(source);
    let mut any = false;
    let in_state: Vec<bool> = edit
        .select
        .iter()
        .map(|pattern| {
            let mut own = leaves.iter().zip(&flats).filter(|(leaf, _)| !leaf.outside_state);
            source.has_outside_state() && own.any(|(_, key)| pattern.selects(key))
        })
        .collect();
    for (leaf, key) in leaves.iter().zip(&flats) {
        if !edit.states.is_empty() {
            let state = leaf.state(dot);
            if !state.starts_with("__") && !edit.states.iter().any(|one| *one == state) {
                continue;
            }
        }
        let matches = |pattern: &Pattern| pattern.selects(key);
        let mut selected = edit.select.is_empty();
        for ((pattern, used), in_state) in edit.select.iter().zip(&mut used).zip(&in_state) {
            if matches(pattern) {
                selected |= !(leaf.outside_state && *in_state);
                *used = true;
            }
        }
        if !selected || edit.exclude.iter().any(matches) {
            continue;
        }
        any = true;
        let mut at = Some(leaf.id);
        while let Some(id) = at {
            match kept.get_mut(id.0 as usize) {
                Some(kept) if !*kept => *kept = true,
                _ => break,
            }
            at = parents[id.0 as usize];
        }
    }
    if let Some((pattern, _)) = edit.select.iter().zip(&used).find(|(_, used)| !**used) {
        return Err(no_match(pattern));
    }
    match any {
        true => Ok(kept),
        false => Err(Error::refused("nothing is left: every selected key is excluded too")),
    }
}

fn check_states(edit: &Edit, leaves: &[Leaf], dot: char) -> Result<()> {
    if edit.states.is_empty() {
        return Ok(());
    }
    let mut there: Vec<Cow<'_, str>> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for leaf in leaves {
        let state = leaf.state(dot);
        if seen.insert(state.clone()) {
            there.push(state);
        }
    }
    let Some(unknown) = edit.states.iter().find(|state| !seen.contains(state.as_str())) else {
        return Ok(());
    };
    Err(Error::refused(format!("there is no state `{unknown}`"))
        .expected(format!("some of {}", listed(&there, NAMED))))
}

pub(super) fn no_match(pattern: &Pattern) -> Error {
    let text = pattern.as_str();
    let error = Error::refused(format!("no key matches {text}"));
    if text.starts_with('/') || text.contains('*') {
        return error.advice(advice!["List the keys with ", Setting::ListKeys, "."]);
    }
    error.advice(format!(
        "A pattern must match the whole key: `{text}.*` matches the keys below it, `*{text}*` all \
         keys that contain it."
    ))
}

/// Removes values that are not kept from the containers that are. The removed values are unchanged,
/// because a link may still lead to them.
///
/// Keeps selected entries, even those that are not part of the module's state dict.
pub(super) fn filter(builder: &mut Builder, source: &Checkpoint, kept: &[bool], is_selected: bool) {
    if is_selected && source.has_outside_state() {
        for (index, _) in kept.iter().enumerate().filter(|(_, kept)| **kept) {
            builder.set_outside_state(ValueId(index as u32), false);
        }
    }
    let keep = |id: &ValueId| kept.get(id.0 as usize).copied().unwrap_or(false);
    for (index, _) in kept.iter().enumerate().filter(|(_, kept)| **kept) {
        let id = ValueId(index as u32);
        if !source.value(id).is_container() {
            continue;
        }
        if let Some(value) = builder.value_mut(id) {
            value.retain_children(keep);
        }
    }
}

/// Visits everything below the root, objects and attributes included. If the target of a link is no
/// longer in the tree, it replaces the first link to it. Returns which values are then in the tree,
/// and the moved values by the link that they replace.
pub(super) fn place_links(
    builder: &mut Builder,
    source: &Checkpoint,
) -> Result<(Vec<bool>, HashMap<ValueId, ValueId>)> {
    let mut reached = vec![false; source.values().len()];
    let mut links: VecDeque<(ValueId, ValueId)> = VecDeque::new();
    let mut moved = HashMap::new();
    let names = OnceCell::new();
    // Values to visit, with their parents; the root is its own parent.
    let mut stack = vec![(source.root(), source.root())];
    loop {
        while let Some((parent, id)) = stack.pop() {
            if let Some(Value::Link(_)) = builder.value(id) {
                links.push_back((parent, id));
                continue;
            }
            match reached.get_mut(id.0 as usize) {
                Some(reached) if !*reached => *reached = true,
                _ => {
                    // An earlier link took the value out of this container, so a link to it takes
                    // its place.
                    let link = builder.push(Value::Link(id))?;
                    if let Some(value) = builder.value_mut(parent) {
                        replace_child(value, id, link);
                    }
                    continue;
                }
            }
            stack.extend(source.attributes(id).map(|attributes| (id, attributes)));
            let children = builder.value(id).map(Value::children).unwrap_or_default();
            stack.extend(children.into_iter().rev().map(|child| (id, child)));
        }
        let Some((parent, link)) = links.pop_front() else { return Ok((reached, moved)) };
        let target = source.resolve(link);
        if reached.get(target.0 as usize) != Some(&false) {
            continue;
        }
        if let Some(value) = builder.value_mut(parent) {
            replace_child(value, link, target);
        }
        rename(builder, source, &names, link, target);
        moved.insert(link, target);
        stack.push((parent, target));
    }
}

/// Empties values that are no longer in the tree: they would still claim children that have moved.
pub(super) fn clear(builder: &mut Builder, reached: &[bool]) {
    for (index, _) in reached.iter().enumerate().filter(|(_, reached)| !**reached) {
        if let Some(value) = builder.value_mut(ValueId(index as u32))
            && !value.children().is_empty()
        {
            *value = Value::None;
        }
    }
}

/// Drops findings of damage in values that were left out: the remaining ones are intact.
pub(super) fn forget(source: &Checkpoint, edited: &mut Checkpoint) {
    let placed = |finding: &Finding| finding.grade == Grade::Damage && !finding.place.is_empty();
    if !source.findings.iter().any(placed) {
        return;
    }
    let keys = |checkpoint: &Checkpoint| -> HashSet<String> {
        let leaves = checkpoint.leaves();
        leaves.iter().map(|leaf| leaf.flat.to_lossy().into_owned()).collect()
    };
    let (before, after) = (keys(source), keys(edited));
    edited.findings.retain(|finding| {
        !placed(finding) || !before.contains(&finding.place) || after.contains(&finding.place)
    });
}

/// Gives moved values the names of their new places, because names in the file belong to places.
fn rename(
    builder: &mut Builder,
    source: &Checkpoint,
    names: &OnceCell<HashMap<ValueId, Text>>,
    link: ValueId,
    target: ValueId,
) {
    if source.stored_key(link).is_none() && source.stored_key(target).is_none() {
        return;
    }
    let names = names
        .get_or_init(|| source.leaves().into_iter().map(|leaf| (leaf.id, leaf.flat)).collect());
    if let Some(name) = names.get(&link) {
        builder.set_stored_key(target, name.clone());
    }
}

fn replace_child(value: &mut Value, old: ValueId, new: ValueId) {
    let swap = |id: &mut ValueId| {
        if *id == old {
            *id = new;
        }
    };
    match value {
        Value::List(List { items, .. })
        | Value::Tuple(Tuple { items, .. })
        | Value::Set(Set { items, .. }) => items.iter_mut().for_each(swap),
        Value::Dict(Dict { entries, .. }) => entries.iter_mut().map(|(_, id)| id).for_each(swap),
        Value::Sparse(sparse) => sparse.parts.iter_mut().map(|(_, id)| id).for_each(swap),
        Value::Opaque(opaque) => {
            let Opaque { args, state, items, entries, .. } = &mut **opaque;
            let pairs = entries.iter_mut().flat_map(|(key, value)| [key, value]);
            args.iter_mut().chain(state).chain(items).chain(pairs).for_each(swap);
        }
        _ => {}
    }
}
