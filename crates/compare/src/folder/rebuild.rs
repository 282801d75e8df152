//! Writes a correct index for shards.

use std::collections::{BTreeMap, HashSet};

use statelens_checkpoint::{Error, FileSet, Limits, Progress, Result, order};

use super::files::{self, id_of};
use super::index::Index;
use super::places::holders;
use super::sets::{self, ShardSet};
use super::shard::{self, TensorEntry};
use super::{Findings, RuleLevels};

/// A new index for shards that stay unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RebuiltIndex {
    /// The name of the file.
    pub file: String,
    /// Its text.
    pub text: String,
    /// Whether a file with this name exists.
    pub replaces: bool,
}

/// Returns a correct index for each set of shards in a folder.
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
            let replaces = id_of(files, &name).is_some();
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
        let id = id_of(files, name)
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
