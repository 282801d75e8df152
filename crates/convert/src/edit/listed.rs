//! Renames parameters in the lists of names that optimizers and DeepSpeed keep, along with the keys
//! of the state dict.
//!
//! The names are keys below a dict, often `model` or `module`: torch's `param_names` and, in
//! distributed state dicts, `params` and the keys of `state`
//! (`torch/distributed/checkpoint/state_dict.py`); `param_shapes`, `frozen_param_shapes`,
//! `frozen_param_fragments`, `buffer_names` and `shared_params` of DeepSpeed
//! (`deepspeed/runtime/engine.py`).

use std::collections::{BTreeMap, HashMap, HashSet};

use statelens_checkpoint::{
    Checkpoint, Dict, DictKey, Finding, FindingKind, Grade, Leaf, List, Result, Text, Tuple, Value,
    ValueId, counted,
};

use super::Change;
use super::versions::renamed;
use crate::Edit;

/// Keys of dicts whose values are names of parameters: in lists, or as keys and texts of dicts.
const NAME_LISTS: [&str; 7] = [
    "param_names",
    "params",
    "param_shapes",
    "frozen_param_shapes",
    "frozen_param_fragments",
    "buffer_names",
    "shared_params",
];

/// Returns the checkpoint with the new names in its lists; `None` if no list names a key that was
/// renamed. `changes` returns those of all leaves of the source.
pub(super) fn follow(
    edit: &Edit,
    source: &Checkpoint,
    edited: &Checkpoint,
    changes: impl FnOnce() -> Vec<Change>,
) -> Result<Option<Checkpoint>> {
    let lists = name_lists(edited);
    let names: HashSet<&str> =
        lists.iter().flat_map(|list| &list.names).map(|(_, it)| &**it).collect();
    if names.is_empty() {
        return Ok(None);
    }
    let changes = changes();
    let mut known = known_names(edit, &changes, &names);
    if known.new_names.values().any(Option::is_none) {
        known.take_last_steps(source, edited, &changes);
    }
    let kept = kept_keys(edited, &lists, &changes);
    let mut builder = edited.edit();
    let ranks = known.ranks();
    let (mut count, mut unclear) = (0, None);
    for list in &lists {
        let Some(start) = known.start_of(list, &ranks) else { continue };
        for (place, old) in &list.names {
            let new = match known.new_names.get(&(start, old.as_str())) {
                Some(Some(new)) if new != old => new,
                Some(None) => {
                    unclear.get_or_insert(old);
                    continue;
                }
                _ => continue,
            };
            let new = Text::from(new.as_str());
            match (place, builder.value_mut(place.value())) {
                (NamePlace::Text(_), Some(value)) => *value = Value::Str(new),
                (NamePlace::Key { entry, .. }, _) if !kept.contains(entry) => continue,
                (NamePlace::Key { at, .. }, Some(Value::Dict(dict))) => {
                    if let Some((key, _)) = dict.entries.get_mut(*at) {
                        *key = DictKey::Str(new);
                    }
                }
                _ => continue,
            }
            count += 1;
        }
    }
    let finding = match unclear {
        Some(name) => Finding::new(Grade::Warning, "lists keep the old names of some parameters")
            .detail(format!("`{name}`: its key moved to another dict, so no new name fits.")),
        None if count == 0 => return Ok(None),
        None => Finding::new(Grade::Note, "lists of parameters follow the new keys")
            .detail(format!("{} renamed in them.", counted(count, "name"))),
    };
    let mut edited = builder.rebuild(edited)?;
    edited.findings.push(finding.kind(FindingKind::LeftOut));
    Ok(Some(edited))
}

/// A list of names of parameters.
struct NameList {
    names: Vec<(NamePlace, String)>,
}

/// Where a name is.
enum NamePlace {
    /// A text.
    Text(ValueId),
    /// The key of an entry of a dict, by its number and its value.
    Key { dict: ValueId, at: usize, entry: ValueId },
}

impl NamePlace {
    fn value(&self) -> ValueId {
        match self {
            Self::Text(id) | Self::Key { dict: id, .. } => *id,
        }
    }
}

/// Returns the lists of names in a checkpoint.
fn name_lists(edited: &Checkpoint) -> Vec<NameList> {
    let (mut lists, mut seen) = (Vec::new(), HashSet::new());
    for value in edited.values() {
        let Value::Dict(dict) = value else { continue };
        let named = |name: &str| {
            let entry = dict.entries.iter().find(|(key, _)| *key == DictKey::from(name));
            entry.map(|(_, id)| edited.resolve(*id))
        };
        // Its keys are numbers, or names in a distributed state dict.
        let of_optimizer = named("state").filter(|_| named("param_groups").is_some());
        let listed = dict.entries.iter().filter(|(key, _)| match key {
            DictKey::Str(key) => key.as_str().is_some_and(|key| NAME_LISTS.contains(&key)),
            _ => false,
        });
        let listed = listed.map(|(_, id)| edited.resolve(*id));
        for id in listed.chain(of_optimizer) {
            if seen.insert(id) {
                let names = names_in(edited, id);
                lists.extend((!names.is_empty()).then_some(NameList { names }));
            }
        }
    }
    lists
}

/// Returns the names in a list of texts, or the keys and texts of a dict or of a list of dicts.
fn names_in(edited: &Checkpoint, id: ValueId) -> Vec<(NamePlace, String)> {
    let mut names = Vec::new();
    let text = |id: ValueId| match edited.value(id) {
        Value::Str(text) => text.as_str().map(str::to_owned),
        _ => None,
    };
    let add_dict = |id: ValueId, dict: &Dict, names: &mut Vec<_>| {
        for (at, (key, value)) in dict.entries.iter().enumerate() {
            if let DictKey::Str(key) = key
                && let Some(key) = key.as_str()
            {
                names.push((NamePlace::Key { dict: id, at, entry: *value }, key.to_owned()));
            }
            names.extend(text(*value).map(|name| (NamePlace::Text(*value), name)));
        }
    };
    match edited.value(id) {
        Value::List(List { items, .. }) | Value::Tuple(Tuple { items, .. }) => {
            for item in items {
                let inner = edited.resolve(*item);
                match edited.value(inner) {
                    Value::Dict(dict) => add_dict(inner, dict, &mut names),
                    _ => names.extend(text(*item).map(|name| (NamePlace::Text(*item), name))),
                }
            }
        }
        Value::Dict(dict) => add_dict(id, dict, &mut names),
        _ => {}
    }
    names
}

/// Returns the entries of dicts whose keys no rule has renamed.
fn kept_keys(edited: &Checkpoint, lists: &[NameList], changes: &[Change]) -> HashSet<ValueId> {
    let names = lists.iter().flat_map(|list| &list.names);
    let entries: HashMap<ValueId, &str> = names
        .filter_map(|(place, name)| match place {
            NamePlace::Key { entry, .. } => Some((*entry, name.as_str())),
            NamePlace::Text(_) => None,
        })
        .collect();
    if entries.is_empty() {
        return HashSet::new();
    }
    let old_keys: BTreeMap<&str, &str> = changes
        .iter()
        .filter_map(|change| Some((change.new.as_deref()?, change.old.as_str())))
        .collect();
    let is_kept = |(id, key): &(ValueId, Text)| {
        let (key, name) = (key.to_lossy(), entries.get(id).copied().unwrap_or_default());
        let leaf = old_keys.range(&*key..).next().filter(|(new, _)| new.starts_with(&*key));
        let end = key.len().saturating_sub(name.len());
        leaf.is_some_and(|(new, old)| new.get(end..).is_some_and(|tail| old.ends_with(tail)))
    };
    let keys = edited.flat_keys(&entries.keys().copied().collect());
    keys.into_iter().filter(is_kept).map(|(id, _)| id).collect()
}

/// The keys of the source that lists name.
struct KnownNames<'a> {
    /// The new name for a start of keys and a name; `None` if the key is not below the new start.
    new_names: HashMap<(&'a str, &'a str), Option<String>>,
    /// The starts by name, in the order of the keys.
    starts: HashMap<&'a str, Vec<&'a str>>,
}

impl<'a> KnownNames<'a> {
    /// Returns the start of the keys that a list names: the one with which most of them are keys. Of
    /// several, one with more names in all lists, or with names that change, counts.
    fn start_of(&self, list: &NameList, ranks: &HashMap<&str, StartRank>) -> Option<&'a str> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, name) in &list.names {
            for start in self.starts.get(name.as_str()).into_iter().flatten() {
                *counts.entry(start).or_default() += 1;
            }
        }
        // Of equal ones, the first in the order of their texts.
        let ranked = counts.into_iter().rev();
        ranked.max_by_key(|(start, count)| (*count, ranks.get(*start))).map(|(start, _)| start)
    }

    /// Returns the rank of each start.
    fn ranks(&self) -> HashMap<&'a str, StartRank> {
        let mut ranks: HashMap<&str, StartRank> = HashMap::new();
        for ((start, name), new) in &self.new_names {
            let rank = ranks.entry(start).or_default();
            rank.names += 1;
            rank.is_changed |= new.as_deref() != Some(*name);
        }
        ranks
    }

    /// Finds the new names of keys that moved to another dict: if a name was a step of its own, its
    /// new name is one, too.
    fn take_last_steps(&mut self, source: &Checkpoint, edited: &Checkpoint, changes: &[Change]) {
        let (before, after) = (last_steps(source), last_steps(edited));
        let new_keys: HashMap<&str, &str> = changes
            .iter()
            .filter_map(|change| Some((change.old.as_str(), change.new.as_deref()?)))
            .collect();
        for ((start, name), new) in self.new_names.iter_mut().filter(|(_, new)| new.is_none()) {
            let old = format!("{start}{name}");
            if before.get(&old).is_some_and(|step| step == name) {
                *new = new_keys.get(old.as_str()).and_then(|key| after.get(*key)).cloned();
            }
        }
    }
}

/// What makes a start likely among several with as many names of a list.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct StartRank {
    /// Number of names in all lists that are keys after it.
    names: usize,
    /// Whether one of them gets a new name.
    is_changed: bool,
}

/// Returns the last step of each key with texts.
fn last_steps(checkpoint: &Checkpoint) -> HashMap<String, String> {
    let step = |leaf: Leaf| {
        let last = leaf.key.parts.last()?.text().to_lossy().into_owned();
        Some((leaf.flat.to_lossy().into_owned(), last))
    };
    checkpoint.each_leaf().filter_map(step).collect()
}

/// Finds the keys that end in one of the names, and the names for their new keys.
fn known_names<'a>(edit: &Edit, changes: &'a [Change], names: &HashSet<&str>) -> KnownNames<'a> {
    let mut known = KnownNames { new_names: HashMap::new(), starts: HashMap::new() };
    let mut new_starts: HashMap<&str, String> = HashMap::new();
    for change in changes {
        let Some(new) = &change.new else { continue };
        let inner = change.old.match_indices('.').map(|(at, _)| at + 1);
        for at in std::iter::once(0).chain(inner) {
            let (start, name) = change.old.split_at(at);
            if !names.contains(name) {
                continue;
            }
            let new_start = new_starts.entry(start).or_insert_with(|| match start {
                "" => String::new(),
                start => renamed(edit, start),
            });
            let new = new.strip_prefix(new_start.as_str()).map(str::to_owned);
            known.new_names.insert((start, name), new);
            known.starts.entry(name).or_default().push(start);
        }
    }
    known
}
