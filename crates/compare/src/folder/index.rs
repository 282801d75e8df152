//! Indexes of shards, and what they say about the shards.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use statelens_checkpoint::{
    Error, FileSet, Limits, Progress, Result, counted, grouped, listed, order, shape_text,
};

use super::document::JsonFile;
use super::rules::{
    INDEX_BROKEN, INDEX_OUTSIDE, INDEX_TOTAL_SIZE, METADATA_DIFFERS, SHARD_MISSING,
    SHARD_NOT_IN_INDEX, TENSOR_IN_WRONG_SHARD, TENSOR_MISSING, TENSOR_NOT_IN_INDEX, TENSOR_TWICE,
    TENSOR_TWICE_DIFFERS,
};
use super::sets::{self, ShardSet};
use super::shard::{self, TensorEntry, report_stand_in, text_of};
use super::{Findings, RuleLevels, files};

/// Maximum number of findings of one rule that are listed one by one.
pub(super) const MAX_EACH: usize = 20;

/// An index: `model.safetensors.index.json`
/// (<https://huggingface.co/docs/transformers/big_models>).
pub(super) struct Index {
    pub(super) file: String,
    /// Each key with the name of its file, in order.
    pub(super) map: Vec<(String, String)>,
    total_size: Option<u64>,
    has_total_parameters: bool,
}

impl Index {
    /// Reads an index; reports one that can't be read.
    pub(super) fn read(files: &FileSet, name: &str, findings: &mut Findings<'_>) -> Option<Self> {
        let id = sets::id_of(files, name)?;
        if let Ok(Some(found)) = files::stand_in(files, id) {
            report_stand_in(found, name, findings);
            return None;
        }
        match Self::parse(files, name) {
            Ok(index) => Some(index),
            Err(error) => {
                let text = format!("{name} can't be read: {}", text_of(&error));
                findings.add(&INDEX_BROKEN, name, text);
                None
            }
        }
    }

    fn parse(files: &FileSet, name: &str) -> Result<Self> {
        let json =
            JsonFile::read(files, name).unwrap_or_else(|| Err(Error::io("it is missing")))?;
        let weights = json.root().get("weight_map").filter(|map| map.is_object());
        let weights = weights.ok_or_else(|| Error::damaged("it has no `weight_map`"))?;
        let mut map = Vec::new();
        for (key, value) in weights.entries() {
            let shard = value.text().ok_or_else(|| {
                Error::damaged(format!("its `weight_map` gives no file name for `{key}`"))
            })?;
            map.push((key, shard.strip_prefix("./").unwrap_or(shard).to_owned()));
        }
        if map.is_empty() {
            return Err(Error::damaged("its `weight_map` is empty"));
        }
        let metadata = json.root().get("metadata");
        let number = |name: &str| metadata.and_then(|it| it.get(name)).and_then(|it| it.number());
        let (total_size, parameters) = (number("total_size"), number("total_parameters"));
        let has_total_parameters = parameters.is_some();
        Ok(Self { file: name.to_owned(), map, total_size, has_total_parameters })
    }

    /// Returns the names of the shards, in natural order.
    pub(super) fn shards(&self) -> Vec<String> {
        let names: BTreeSet<&String> = self.map.iter().map(|(_, shard)| shard).collect();
        let mut names: Vec<String> = names.into_iter().cloned().collect();
        order::natural(&mut names);
        names
    }
}

/// The places of a tensor: the positions of the shards, and what is in them.
type Holders<'a> = HashMap<&'a str, Vec<(usize, &'a TensorEntry)>>;

fn holders(set: &ShardSet) -> Holders<'_> {
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

/// A new index for shards that stay as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RebuiltIndex {
    /// The name of the file.
    pub file: String,
    /// Its text.
    pub text: String,
    /// Whether a file with this name exists.
    pub replaces: bool,
}

/// Returns the right index for each set of shards in a folder.
///
/// # Errors
/// Fails if a shard is missing or can't be read, or if shards have a tensor with different dtypes or
/// shapes: then no index is right.
pub fn rebuild_indexes(
    files: &FileSet,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<Vec<RebuiltIndex>> {
    let levels = RuleLevels::default();
    let mut findings = Findings { levels: &levels, list: Vec::new() };
    let mut names: Vec<&str> = files.names().map(|(_, name)| name).collect();
    names.retain(|name| !name.contains('/'));
    order::natural(&mut names);
    let weights: Vec<&str> = names.iter().copied().filter(|name| files::is_weights(name)).collect();
    let mut rebuilt = Vec::new();
    let mut seen = HashSet::new();
    let plans = sets::plan(files, &names, &weights, &mut findings);
    for plan in plans.into_iter().filter(|plan| plan.set.is_sharded) {
        // The shards that belong together by their numbers, whatever the index names.
        let known = plan.names.iter().chain(&plan.set.unnamed);
        let Some(number) = known.clone().find_map(|name| files::Numbered::parse(name)) else {
            continue;
        };
        if !["safetensors", "bin"].contains(&number.extension.as_str()) {
            continue;
        }
        let first = u64::from(!weights.contains(&number.name(0).as_str()));
        let all: Vec<String> = (first..first + number.count).map(|at| number.name(at)).collect();
        let default = format!("{}.{}.index.json", number.stem, number.extension);
        let name = plan.index.as_ref().map_or(default, |index| index.file.clone());
        if seen.insert(name.clone()) {
            let replaces = sets::id_of(files, &name).is_some();
            let text = rebuild(files, &all, plan.index.as_ref(), limits, progress)
                .map_err(|error| error.context(format!("{name} can't be written")))?;
            rebuilt.push(RebuiltIndex { file: name, text, replaces });
        }
    }
    match rebuilt.is_empty() {
        true => Err(Error::refused("there are no numbered shards that need an index")),
        false => Ok(rebuilt),
    }
}

fn rebuild(
    files: &FileSet,
    names: &[String],
    old: Option<&Index>,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<String> {
    let levels = RuleLevels::default();
    let mut set = ShardSet::default();
    for name in names {
        let id = sets::id_of(files, name)
            .ok_or_else(|| Error::refused(format!("the shard {name} is missing")))?;
        let mut found = Findings { levels: &levels, list: Vec::new() };
        let shard = shard::read(files, id, limits, progress, &mut found)?;
        let error = found.list.iter().find(|one| one.level == super::Level::Error);
        if let Some(error) = error {
            return Err(Error::refused(error.text.clone()).advice(error.fix.clone()));
        }
        set.shards.push(shard);
    }
    let holders = holders(&set);
    let (mut map, mut size, mut parameters) = (BTreeMap::new(), 0u64, 0u64);
    for (key, held) in &holders {
        let Some((first, rest)) = held.split_first() else { continue };
        let differs = |one: &(usize, &TensorEntry)| {
            (&one.1.dtype, &one.1.shape) != (&first.1.dtype, &first.1.shape)
        };
        if rest.iter().any(differs) {
            return Err(Error::refused(format!(
                "two shards have `{key}` with different dtypes or shapes, and an index can't say \
                 which one is right"
            )));
        }
        let named = old.and_then(|old| old.map.iter().find(|(known, _)| known == key));
        let file = |at: usize| set.shards.get(at).map_or("", |shard| shard.file.as_str());
        let kept = held.iter().find(|(at, _)| named.is_some_and(|(_, name)| *name == file(*at)));
        let (at, entry) = kept.unwrap_or(first);
        if !entry.is_alias {
            size = size.saturating_add(entry.bytes);
            let numel = entry.shape.iter().fold(1u64, |size, dim| size.saturating_mul(*dim));
            parameters = parameters.saturating_add(numel);
        }
        map.insert(*key, file(*at));
    }
    let mut metadata = serde_json::Map::new();
    if old.is_some_and(|old| old.has_total_parameters) {
        metadata.insert("total_parameters".to_owned(), parameters.into());
    }
    metadata.insert("total_size".to_owned(), size.into());
    let index = serde_json::json!({ "metadata": metadata, "weight_map": map });
    let text = serde_json::to_string_pretty(&index)
        .map_err(|error| Error::io(format!("the index can't be written: {error}")))?;
    Ok(text + "\n")
}
