//! The checkpoints of a folder: sets of shards with or without an index, and single files.

use std::collections::HashSet;

use statelens_checkpoint::{FileSet, Limits, Progress, Result, order};
use statelens_formats::sets::CheckpointFiles;

use super::Findings;
use super::files::{Numbered, extension, id_of, is_index, is_state, is_unfinished, is_weights};
use super::index::Index;
use super::rules::{DOWNLOAD_UNFINISHED, FILE_COPY, INDEX_MISSING, INDEX_STALE, NO_WEIGHTS};
use super::shard::{self, Shard, TensorEntry};

/// The files of one checkpoint.
#[derive(Default)]
pub(super) struct ShardSet {
    pub(super) index: Option<Index>,
    pub(super) shards: Vec<Shard>,
    /// Names of shards that are not there.
    pub(super) missing: Vec<String>,
    /// Names that lead out of the folder.
    pub(super) outside: Vec<String>,
    /// Shards that are numbered like the others, and that the index does not name.
    pub(super) unnamed: Vec<String>,
    /// Whether the files are numbered, or named by an index.
    pub(super) is_sharded: bool,
}

impl ShardSet {
    /// Returns the name of the set for messages: that of its index or of its first file.
    pub(super) fn name(&self) -> &str {
        let first = self.shards.first().map(|shard| shard.file.as_str());
        self.index.as_ref().map(|index| index.file.as_str()).or(first).unwrap_or("")
    }

    /// Returns whether every shard is there and readable.
    pub(super) fn is_complete(&self) -> bool {
        self.missing.is_empty()
            && self.outside.is_empty()
            && self.unnamed.is_empty()
            && self.shards.iter().all(|shard| shard.is_readable)
    }

    /// Iterates over all tensors, each with its file.
    pub(super) fn tensors(&self) -> impl Iterator<Item = (&str, &TensorEntry)> {
        self.shards
            .iter()
            .flat_map(|shard| shard.tensors.iter().map(|entry| (shard.file.as_str(), entry)))
    }

    pub(super) fn extension(&self) -> &str {
        self.shards.first().map_or("", |shard| extension(&shard.file))
    }

    pub(super) fn is_adapter(&self) -> bool {
        let is_named = |shard: &Shard| shard.file.starts_with("adapter_");
        self.shards.iter().any(is_named)
            || self.tensors().any(|(_, entry)| entry.key.contains(".lora_A."))
    }
}

/// All checkpoints of a folder.
pub(super) struct Sets {
    pub(super) list: Vec<ShardSet>,
    pub(super) weight_files: u64,
    pub(super) tensors: u64,
}

/// Finds the sets, and reads the structure of their files. `ranks` are the sets of files with parts of
/// tensors.
pub(super) fn read(
    files: &FileSet,
    only: Option<&str>,
    mut ranks: Vec<CheckpointFiles>,
    limits: &Limits,
    progress: &mut dyn Progress,
    findings: &mut Findings<'_>,
) -> Result<Sets> {
    let mut names: Vec<&str> = files.names().map(|(_, name)| name).collect();
    names.retain(|name| !name.contains('/'));
    order::natural(&mut names);
    names.dedup();
    if only.is_none() {
        for name in names.iter().filter(|name| is_unfinished(name)) {
            let text = format!("{name} is the rest of an interrupted download");
            findings.add(&DOWNLOAD_UNFINISHED, name, text);
        }
    }
    if only.is_none() {
        for name in &names {
            if let Some(original) = original_of(name).filter(|it| names.contains(&it.as_str())) {
                let text = format!("{name} is named as a copy of {original}");
                findings.add(&FILE_COPY, name, text);
            }
        }
    }
    let parts: HashSet<String> = ranks.iter().flat_map(|set| set.members.clone()).collect();
    names.retain(|name| !parts.contains(*name));
    let weights: Vec<&str> = names.iter().copied().filter(|name| is_weights(name)).collect();
    let mut plans = plan(files, &names, &weights, findings);
    if let Some(only) = only {
        plans.retain(|plan| plan.has(only));
    }
    let mut sets = Sets { list: Vec::new(), weight_files: 0, tensors: 0 };
    for plan in plans {
        let set = plan.read(files, limits, progress, findings)?;
        sets.weight_files += set.shards.len() as u64;
        sets.tensors += set.shards.iter().map(|shard| shard.tensors.len() as u64).sum::<u64>();
        sets.list.push(set);
    }
    ranks.retain(|set| only.is_none_or(|only| set.members.iter().any(|member| member == only)));
    for found in ranks {
        let Some(id) = id_of(files, &found.main) else { continue };
        let shard = shard::read_set(files, id, limits, progress, findings)?;
        sets.weight_files += found.members.len() as u64;
        sets.tensors += shard.tensors.len() as u64;
        sets.list.push(ShardSet { shards: vec![shard], ..ShardSet::default() });
    }
    others(files, only, &names, &mut sets, (limits, progress), findings)?;
    if sets.weight_files == 0 && !findings.list.iter().any(|one| !one.file.is_empty()) {
        findings.add(&NO_WEIGHTS, "", "There is no checkpoint in the folder".to_owned());
    }
    Ok(sets)
}

/// Returns the name of the file that browsers and file managers name a copy after: `a (1).bin`,
/// `a copy.bin`, `a - Copy.bin`.
fn original_of(name: &str) -> Option<String> {
    let (stem, extension) = name.rsplit_once('.')?;
    let numbered = || {
        let (stem, number) = stem.strip_suffix(')')?.rsplit_once(" (")?;
        number.bytes().all(|byte| byte.is_ascii_digit()).then_some(stem)
    };
    let original =
        stem.strip_suffix(" - Copy").or_else(|| stem.strip_suffix(" copy")).or_else(numbered)?;
    Some(format!("{original}.{extension}"))
}

/// The files of a set, before they are read.
#[derive(Default)]
pub(super) struct SetPlan {
    pub(super) index: Option<Index>,
    pub(super) names: Vec<String>,
    pub(super) set: ShardSet,
}

impl SetPlan {
    fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
            || self.index.as_ref().is_some_and(|index| index.file == name)
    }

    fn read(
        self,
        files: &FileSet,
        limits: &Limits,
        progress: &mut dyn Progress,
        findings: &mut Findings<'_>,
    ) -> Result<ShardSet> {
        let mut set = ShardSet { index: self.index, ..self.set };
        for name in &self.names {
            match id_of(files, name) {
                Some(id) => set.shards.push(shard::read(files, id, limits, progress, findings)?),
                None => set.missing.push(name.clone()),
            }
        }
        Ok(set)
    }
}

/// Groups the files with weights into sets. Reads the indexes.
pub(super) fn plan(
    files: &FileSet,
    names: &[&str],
    weights: &[&str],
    findings: &mut Findings<'_>,
) -> Vec<SetPlan> {
    let (mut plans, mut claimed) = (Vec::new(), HashSet::new());
    let mut broken = false;
    for name in names.iter().filter(|name| is_index(name)) {
        let Some(index) = Index::read(files, name, findings) else {
            broken = true;
            continue;
        };
        let shards = index.shards();
        let is_there =
            |name: &String| weights.contains(&name.as_str()) || id_of(files, name).is_some();
        if !shards.iter().any(is_there) && !weights.is_empty() {
            let text = format!(
                "{name} names {}, which {} not there, and there are other weights",
                statelens_checkpoint::listed(&shards, 3),
                if shards.len() == 1 { "is" } else { "are" },
            );
            findings.add(&INDEX_STALE, name, text);
            continue;
        }
        let (outside, inside): (Vec<String>, Vec<String>) =
            shards.into_iter().partition(|name| leads_outside(name));
        let numbers: Vec<Numbered> =
            inside.iter().filter_map(|name| Numbered::parse(name)).collect();
        let is_like = |name: &&str| {
            Numbered::parse(name).is_some_and(|it| numbers.iter().any(|one| one.is_family_of(&it)))
        };
        let unnamed: Vec<String> = weights
            .iter()
            .filter(|name| is_like(name) && !inside.iter().any(|known| known == *name))
            .map(|name| (*name).to_owned())
            .collect();
        claimed.extend(inside.iter().cloned());
        claimed.extend(unnamed.iter().cloned());
        let set = ShardSet { outside, unnamed, is_sharded: true, ..ShardSet::default() };
        plans.push(SetPlan { index: Some(index), names: inside, set });
    }
    let has_config = names.contains(&"config.json");
    for name in weights {
        if claimed.contains(*name) {
            continue;
        }
        let Some(number) = Numbered::parse(name) else {
            claimed.insert((*name).to_owned());
            plans.push(SetPlan { names: vec![(*name).to_owned()], ..SetPlan::default() });
            continue;
        };
        // Most sets count from 1, some from 0.
        let first = u64::from(!weights.contains(&number.name(0).as_str()));
        let all: Vec<String> = (first..first + number.count).map(|at| number.name(at)).collect();
        claimed.extend(all.iter().cloned());
        let by_index = ["safetensors", "bin"].contains(&number.extension.as_str());
        if by_index && has_config && !broken {
            let index = format!("{}.{}.index.json", number.stem, number.extension);
            let text = format!("{name} is one of {} shards, and {index} is missing", number.count);
            findings.add(&INDEX_MISSING, &index, text);
        }
        let set = ShardSet { is_sharded: true, ..ShardSet::default() };
        plans.push(SetPlan { names: all, set, ..SetPlan::default() });
    }
    plans
}

/// Returns whether the name of a file leads out of its folder, on any system.
fn leads_outside(name: &str) -> bool {
    name.starts_with(['/', '\\', '~'])
        || name.contains(':')
        || name.split(['/', '\\']).any(|part| part == "..")
}

/// Opens checkpoints of other formats as a whole: their readers know which files belong together.
fn others(
    files: &FileSet,
    only: Option<&str>,
    names: &[&str],
    sets: &mut Sets,
    (limits, progress): (&Limits, &mut dyn Progress),
    findings: &mut Findings<'_>,
) -> Result<()> {
    let is_known = |name: &str| {
        is_weights(name)
            || is_state(name)
            || is_index(name)
            || is_unfinished(name)
            || ["json", "md", "txt", "py", "yaml", "jinja", "model"].contains(&extension(name))
    };
    let mut rest = FileSet::default();
    for (_, file) in files.iter() {
        if names.contains(&file.name.as_str()) && !is_known(&file.name) {
            rest.push_file(file.clone());
        }
    }
    for found in statelens_formats::sets::sort(&rest) {
        if only.is_some_and(|only| !found.members.iter().any(|member| member == only)) {
            continue;
        }
        let Some(id) = id_of(&rest, &found.main) else { continue };
        match statelens_formats::open(rest.opened_at(id), limits, progress) {
            Ok(checkpoint) => {
                sets.weight_files += found.members.len() as u64;
                sets.tensors += checkpoint
                    .each_leaf()
                    .filter(|leaf| checkpoint.tensor_of(leaf.target).is_some())
                    .count() as u64;
                for finding in &checkpoint.findings {
                    shard::report(finding, &found.main, findings);
                }
            }
            Err(error) => {
                let text = format!("{} can't be read: {}", found.main, shard::text_of(&error));
                findings.add(&super::rules::FILE_DAMAGED, &found.main, text);
            }
        }
    }
    Ok(())
}
