//! Where tensors are, and where the index says that they are: missing shards, tensors in two shards,
//! in none, or in the wrong one.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use statelens_checkpoint::{counted, grouped, listed, shape_text};

use super::Findings;
use super::index::Index;
use super::rules::{
    INDEX_OUTSIDE, INDEX_TOTAL_SIZE, METADATA_DIFFERS, SHARD_MISSING, SHARD_NOT_IN_INDEX,
    TENSOR_IN_WRONG_SHARD, TENSOR_MISSING, TENSOR_NOT_IN_INDEX, TENSOR_TWICE, TENSOR_TWICE_DIFFERS,
};
use super::sets::ShardSet;
use super::shard::TensorEntry;

/// Maximum number of findings of one rule that are listed one by one.
pub(super) const MAX_EACH: usize = 20;

/// The places of a tensor: the positions of the shards, and its entries in them.
pub(super) type Holders<'a> = HashMap<&'a str, Vec<(usize, &'a TensorEntry)>>;

/// Returns the places of all tensors.
pub(super) fn holders(set: &ShardSet) -> Holders<'_> {
    let mut holders = Holders::new();
    for (at, shard) in set.shards.iter().enumerate() {
        for entry in &shard.tensors {
            holders.entry(&entry.key).or_default().push((at, entry));
        }
    }
    holders
}

/// Checks a set of shards, and its index.
pub(super) fn check(set: &ShardSet, findings: &mut Findings<'_>) {
    for name in set.missing.iter().take(MAX_EACH) {
        let place = match &set.index {
            Some(index) => format!("{} names it", index.file),
            None => "the numbers of the others show that it exists".to_owned(),
        };
        findings.add(&SHARD_MISSING, name, format!("{name} is missing; {place}"));
    }
    if let Some(more @ 1..) = set.missing.len().checked_sub(MAX_EACH) {
        findings.add(
            &SHARD_MISSING,
            "",
            format!("{} more are missing", counted(more as u64, "shard")),
        );
    }
    let Some(index) = &set.index else {
        twice(set, &holders(set), findings);
        metadata(set, findings);
        return;
    };
    for name in &set.outside {
        let text = format!("{} names {name}, which is not in the folder", index.file);
        findings.add(&INDEX_OUTSIDE, &index.file, text);
    }
    for name in &set.unnamed {
        findings.add(&SHARD_NOT_IN_INDEX, name, format!("{} does not name {name}", index.file));
    }
    let holders = holders(set);
    twice(set, &holders, findings);
    places(set, index, &holders, findings);
    metadata(set, findings);
    let all = || set.shards.iter().flat_map(|shard| &shard.tensors);
    let (sum, alone) = all().fold((0u64, 0u64), |(sum, alone), entry| {
        let own = if entry.is_alias { 0 } else { entry.bytes };
        (sum.saturating_add(entry.bytes), alone.saturating_add(own))
    });
    if let Some(said) = index.total_size
        && set.is_complete()
        && said != sum
        && said != alone
    {
        let text = format!(
            "`total_size` in {} is {}, and the tensors have {} bytes",
            index.file,
            grouped(said),
            grouped(alone)
        );
        findings.add(&INDEX_TOTAL_SIZE, &index.file, text);
    }
}

/// Compares where the index says that tensors are with where they are.
fn places(set: &ShardSet, index: &Index, holders: &Holders<'_>, findings: &mut Findings<'_>) {
    let positions: HashMap<&str, usize> =
        set.shards.iter().enumerate().map(|(at, shard)| (shard.file.as_str(), at)).collect();
    let named: HashSet<&str> = index.map.iter().map(|(key, _)| key.as_str()).collect();
    let (mut lost, mut moved) = (BTreeMap::new(), BTreeMap::new());
    for (key, name) in &index.map {
        let Some(at) = positions.get(name.as_str()) else { continue };
        if !set.shards.get(*at).is_some_and(|shard| shard.is_readable) {
            continue;
        }
        match holders.get(key.as_str()) {
            None => lost.entry(name.as_str()).or_insert_with(Vec::new).push(key.as_str()),
            Some(held) if !held.iter().any(|(holder, _)| holder == at) => {
                let holder = held.first().map_or(0, |(holder, _)| *holder);
                let other = set.shards.get(holder).map_or("", |shard| shard.file.as_str());
                moved.entry((name.as_str(), other)).or_insert_with(Vec::new).push(key.as_str());
            }
            Some(_) => {}
        }
    }
    for (name, keys) in lost {
        let text = format!(
            "{} says that {} in {name}, and no shard has {}",
            index.file,
            are(&keys),
            if keys.len() == 1 { "it" } else { "them" }
        );
        findings.add_key(&TENSOR_MISSING, name, keys.first().unwrap_or(&""), text);
    }
    for ((name, other), keys) in moved {
        let text =
            format!("{} says that {} in {name}; the place is {other}", index.file, are(&keys));
        findings.add_key(&TENSOR_IN_WRONG_SHARD, other, keys.first().unwrap_or(&""), text);
    }
    for shard in &set.shards {
        let extra: Vec<&str> = shard
            .tensors
            .iter()
            .map(|entry| entry.key.as_str())
            .filter(|key| !named.contains(key))
            .collect();
        if let Some(first) = extra.first() {
            let text = format!(
                "{} in {}, and {} does not list {}",
                are(&extra),
                shard.file,
                index.file,
                if extra.len() == 1 { "it" } else { "them" }
            );
            findings.add_key(&TENSOR_NOT_IN_INDEX, &shard.file, first, text);
        }
    }
}

/// Returns the keys with a verb: "`a` is", "`a`, `b` and 3 more are".
fn are(keys: &[&str]) -> String {
    format!("{} {}", listed(keys, 5), if keys.len() == 1 { "is" } else { "are" })
}

/// Reports tensors that are in two shards.
fn twice(set: &ShardSet, holders: &Holders<'_>, findings: &mut Findings<'_>) {
    let mut found: Vec<_> = holders.iter().filter(|(_, held)| held.len() > 1).collect();
    found.sort_by_key(|(key, _)| **key);
    let file = |at: usize| set.shards.get(at).map_or("", |shard| shard.file.as_str());
    for (key, held) in found.iter().take(MAX_EACH) {
        let Some(((_, first), rest)) = held.split_first() else { continue };
        let places: Vec<&str> = held.iter().map(|(at, _)| file(*at)).collect();
        let place = places.join(" and ");
        let other =
            rest.iter().find(|(_, one)| (&one.dtype, &one.shape) != (&first.dtype, &first.shape));
        let type_of = |entry: &TensorEntry| format!("{} {}", entry.dtype, shape_text(&entry.shape));
        let last = places.last().unwrap_or(&"");
        match other {
            None => {
                findings.add_key(
                    &TENSOR_TWICE,
                    last,
                    key,
                    format!("`{key}` is in {place}, with one dtype and shape"),
                );
            }
            Some((_, other)) => {
                let text = format!(
                    "`{key}` is in {place}, as {} and as {}",
                    type_of(first),
                    type_of(other)
                );
                findings.add_key(&TENSOR_TWICE_DIFFERS, last, key, text);
            }
        }
    }
    if let Some(more @ 1..) = found.len().checked_sub(MAX_EACH) {
        findings.add(
            &TENSOR_TWICE,
            "",
            format!("{} more are in two shards", counted(more as u64, "tensor")),
        );
    }
}

/// Reports entries of `__metadata__` that one shard has differently from all others.
fn metadata(set: &ShardSet, findings: &mut Findings<'_>) {
    let shards: Vec<_> = set.shards.iter().filter(|shard| shard.is_readable).collect();
    if shards.len() < 2 || set.extension() != "safetensors" {
        return;
    }
    let names: BTreeSet<&str> =
        shards.iter().flat_map(|shard| &shard.metadata).map(|(name, _)| name.as_str()).collect();
    for name in names {
        let value = |at: usize| {
            let shard = shards.get(at)?;
            shard.metadata.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
        };
        let mut counts: BTreeMap<Option<&str>, Vec<usize>> = BTreeMap::new();
        for at in 0..shards.len() {
            counts.entry(value(at)).or_default().push(at);
        }
        let Some((usual, most)) = counts.iter().max_by_key(|(_, at)| at.len()) else { continue };
        // With two shards, only the framework shows that they are from different tools.
        let is_clear = most.len() > 1 && most.len() + 1 >= shards.len() || name == "format";
        if counts.len() < 2 || !is_clear {
            continue;
        }
        for (value, at) in counts.iter().filter(|(value, _)| *value != usual) {
            let (Some(shard), Some(other)) = (
                at.first().and_then(|at| shards.get(*at)),
                most.first().and_then(|at| shards.get(*at)),
            ) else {
                continue;
            };
            let shown = |value: &Option<&str>| match value {
                Some(value) => format!("is `{}`", value.chars().take(100).collect::<String>()),
                None => "is missing".to_owned(),
            };
            let text = format!(
                "`{name}` in `__metadata__` of {} {}; in {} it {}",
                shard.file,
                shown(value),
                other.file,
                shown(usual)
            );
            findings.add(&METADATA_DIFFERS, &shard.file, text);
        }
    }
}
