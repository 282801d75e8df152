//! What the tensors of a folder say together: layers, config, tokenizer, adapters, duplicates.

use std::collections::HashMap;

use statelens_checkpoint::{FileSet, Limits, Result};

use super::config::Config;
use super::layers::Stacks;
use super::rules::{SINGLE_AND_SHARDS, SINGLE_AND_SHARDS_DIFFER};
use super::sets::{Sets, ShardSet};
use super::shard::report_stand_in;
use super::{
    Findings, adapter, experts, fields, files, heads, layers, quantised, sizes, tokenizer, widths,
};

/// JSON files other than config.json that loaders read.
const OTHER_FILES: [&str; 6] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "adapter_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
];

pub(super) fn check(
    files: &FileSet,
    sets: &Sets,
    limits: &Limits,
    findings: &mut Findings<'_>,
) -> Result<()> {
    for name in OTHER_FILES {
        if let Some(id) = files::id_of(files, name)
            && let Some(found) = files::stand_in(files, id)?
        {
            report_stand_in(found, name, findings);
        }
    }
    let config = Config::read(files, findings)?;
    duplicates(sets, findings);
    let main = main_set(sets);
    for set in &sets.list {
        let is_main = main.is_some_and(|main| std::ptr::eq(main, set));
        // Missing tensors would be reported again as layers and parts.
        if set.is_adapter() || !set.is_complete() {
            continue;
        }
        let config = config.as_ref().filter(|_| is_main);
        let stacks = Stacks::of(set);
        layers::check(set, &stacks, config, findings);
        widths::check(set, &stacks, findings);
        experts::check(set, &stacks, config, findings);
        if let Some(config) = config {
            sizes::check(set, &stacks, config, findings);
            heads::check(&stacks, config, findings);
            fields::check(set, &stacks, config, findings);
            quantised::check(set, config, findings);
        }
    }
    if let Some(main) = main {
        tokenizer::check(files, main, limits, findings)?;
    }
    adapter::check(files, sets, main, findings)
}

/// Returns the set that the config is about: the largest of the format that loaders prefer.
fn main_set(sets: &Sets) -> Option<&ShardSet> {
    let rank = |set: &ShardSet| match set.extension() {
        "safetensors" => 0,
        "bin" => 1,
        "pt" | "pth" | "ckpt" => 2,
        _ => 3,
    };
    let found = sets.list.iter().filter(|set| !set.is_adapter() && !set.shards.is_empty());
    found.min_by_key(|set| (rank(set), std::cmp::Reverse(set.tensors().count())))
}

/// Reports a single file next to shards of the same model.
fn duplicates(sets: &Sets, findings: &mut Findings<'_>) {
    for set in sets.list.iter().filter(|set| set.is_complete()) {
        let Some(index) = &set.index else { continue };
        let Some(name) = index.file.strip_suffix(".index.json") else { continue };
        let single = sets.list.iter().find(|other| !other.is_sharded && other.name() == name);
        let Some(single) = single.filter(|single| single.is_complete()) else { continue };
        let types = |set: &ShardSet| -> HashMap<String, (String, Vec<u64>)> {
            let all = set.tensors();
            all.map(|(_, one)| (one.key.clone(), (one.dtype.clone(), one.shape.clone()))).collect()
        };
        let rule = match types(single) == types(set) {
            true => &SINGLE_AND_SHARDS,
            false => &SINGLE_AND_SHARDS_DIFFER,
        };
        let word = if rule == &SINGLE_AND_SHARDS { "the same" } else { "other" };
        let text = format!("{name} has {word} tensors than the shards of {}", index.file)
            .replace("the same tensors than", "the same tensors as");
        findings.add(rule, name, text);
    }
}
