//! Sorts groups into model order and removes those without weights.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use statelens_checkpoint::{Builder, Dict, DictKey, Text, Value, ValueId, natural_order, order};

/// Paths within groups, in the desired order.
#[derive(Debug, Default)]
pub(super) struct PathOrder {
    paths: Vec<(ValueId, String)>,
}

impl PathOrder {
    /// Adds the next path, relative to `group` and separated by `/`.
    pub(super) fn push(&mut self, group: ValueId, path: impl Into<String>) {
        self.paths.push((group, path.into()));
    }

    /// Returns the number of paths.
    pub(super) fn len(&self) -> usize {
        self.paths.len()
    }

    /// Returns the paths that lead to no value, sorted.
    pub(super) fn absent(&self, builder: &Builder) -> Vec<String> {
        let mut tables = HashMap::new();
        let leads_nowhere = |(group, path): &&(ValueId, String)| {
            let mut parts = path.split('/').filter(|part| !part.is_empty());
            let end = parts.try_fold(*group, |at, part| child(builder, at, part, &mut tables));
            end.is_none()
        };
        let paths = self.paths.iter().filter(leads_nowhere).map(|(_, path)| path.clone());
        let mut absent: Vec<String> = paths.collect();
        order::natural(&mut absent);
        absent.dedup();
        absent
    }

    /// Sorts every group below `root`: named children first, in the order of the paths; the rest by
    /// name in natural order. Then removes empty groups.
    pub(super) fn apply(&self, builder: &mut Builder, root: ValueId) {
        let ranks = self.ranks(builder);
        let groups = groups(builder, root);
        for id in &groups {
            let Some(Value::Dict(dict)) = builder.value_mut(*id) else { continue };
            let rank = |id: &ValueId| ranks.get(id).copied().unwrap_or(usize::MAX);
            let entries = std::mem::take(&mut dict.entries).into_iter();
            let mut ranked: Vec<_> = entries.map(|entry| (rank(&entry.1), entry)).collect();
            order::by(&mut ranked, |(rank, (one, _)), (against, (other, _))| match (one, other) {
                (DictKey::Str(one), DictKey::Str(other)) => {
                    rank.cmp(against).then_with(|| natural_order(one.as_bytes(), other.as_bytes()))
                }
                _ => Ordering::Equal,
            });
            dict.entries = ranked.into_iter().map(|(_, entry)| entry).collect();
        }
        // Children come after their parents, so in reverse order everything below a group is done
        // first.
        for id in groups.iter().rev() {
            let Some(Value::Dict(dict)) = builder.value(*id) else { continue };
            let is_empty = |child: ValueId| matches!(builder.value(child), Some(Value::Dict(dict)) if dict.entries.is_empty());
            if !dict.entries.iter().any(|(_, child)| is_empty(*child)) {
                continue;
            }
            let kept =
                dict.entries.iter().filter(|(_, child)| !is_empty(*child)).cloned().collect();
            if let Some(Value::Dict(dict)) = builder.value_mut(*id) {
                dict.entries = kept;
            }
        }
    }

    /// Returns the rank of each named value. The weights listed for a layer come directly after the
    /// layer, before nested layers in its group.
    fn ranks(&self, builder: &Builder) -> HashMap<ValueId, usize> {
        let mut paths: HashMap<ValueId, Vec<&str>> = HashMap::new();
        for (group, path) in &self.paths {
            paths.entry(*group).or_default().push(path);
        }
        let mut ranks = HashMap::new();
        let mut tables: HashMap<ValueId, HashMap<Text, ValueId>> = HashMap::new();
        let mut begun = HashSet::new();
        let mut place = 0;
        for (first, _) in &self.paths {
            // Groups whose paths are being ranked, and the number of paths done.
            let mut open = Vec::new();
            if begun.insert(*first) {
                open.push((*first, 0));
            }
            while let Some((group, count)) = open.last_mut() {
                let Some(path) = paths.get(group).and_then(|paths| paths.get(*count)) else {
                    open.pop();
                    continue;
                };
                *count += 1;
                let mut at = *group;
                for part in path.split('/').filter(|part| !part.is_empty()) {
                    let Some(child) = child(builder, at, part, &mut tables) else { break };
                    ranks.entry(child).or_insert(place);
                    at = child;
                }
                place += 1;
                if paths.contains_key(&at) && begun.insert(at) {
                    open.push((at, 0));
                }
            }
        }
        ranks
    }
}

/// Returns the child of a group with this name.
fn child(
    builder: &Builder,
    group: ValueId,
    name: &str,
    tables: &mut HashMap<ValueId, HashMap<Text, ValueId>>,
) -> Option<ValueId> {
    let group = match builder.value(group) {
        Some(Value::Link(target)) => *target,
        _ => group,
    };
    let Some(Value::Dict(dict)) = builder.value(group) else { return None };
    match dict.entries.len() {
        // A linear search of a few entries is cheaper than a table.
        ..=16 => dict.entries.iter().find(|(key, _)| is(key, name)).map(|(_, id)| *id),
        _ => tables.entry(group).or_insert_with(|| named(dict)).get(name.as_bytes()).copied(),
    }
}

fn is(key: &DictKey, name: &str) -> bool {
    matches!(key, DictKey::Str(text) if *text == *name)
}

fn named(dict: &Dict) -> HashMap<Text, ValueId> {
    let names = dict.entries.iter().filter_map(|(key, id)| match key {
        DictKey::Str(name) => Some((name.clone(), *id)),
        _ => None,
    });
    names.collect()
}

/// Moves the children of the second group into the first. Groups with the same name are merged.
pub(super) fn merge(builder: &mut Builder, into: ValueId, from: ValueId) {
    let mut open = vec![(into, from)];
    while let Some((into, from)) = open.pop() {
        let (Some(Value::Dict(one)), Some(Value::Dict(other))) =
            (builder.value(into), builder.value(from))
        else {
            continue;
        };
        let known = named(one);
        let mut entries = one.entries.clone();
        for (key, id) in &other.entries {
            let name = if let DictKey::Str(name) = key { known.get(name) } else { None };
            match name {
                Some(known) => open.push((*known, *id)),
                None => entries.push((key.clone(), *id)),
            }
        }
        if let Some(Value::Dict(dict)) = builder.value_mut(into) {
            dict.entries = entries;
        }
    }
}

/// Returns all groups below and including `root`, parents before their children.
fn groups(builder: &Builder, root: ValueId) -> Vec<ValueId> {
    let mut found = vec![root];
    let mut at = 0;
    while let Some(id) = found.get(at) {
        if let Some(Value::Dict(dict)) = builder.value(*id) {
            let children: Vec<ValueId> = dict.entries.iter().map(|(_, id)| *id).collect();
            let dicts = children
                .into_iter()
                .filter(|id| matches!(builder.value(*id), Some(Value::Dict(_))));
            found.extend(dicts);
        }
        at += 1;
    }
    found
}
