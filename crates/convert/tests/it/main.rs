//! Edits and merges of real files: the attributes of a dict or a file follow its keys.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod graph;
mod merging;
mod metadata;
mod versions;

use std::sync::Arc;

use statelens_checkpoint::{
    Checkpoint, FileSet, Limits, Memory, Result, Unwatched, Value, ValueId,
};
use statelens_convert::{Edit, Rename};

/// Returns the fixture files in one folder, the first one to be opened.
fn files(folder: &str, names: &[&str]) -> FileSet {
    let mut files = FileSet::default();
    for name in names {
        let bytes = statelens_fixtures::read(&format!("{folder}/{name}"));
        files.push(*name, Arc::new(Memory::from(bytes)));
    }
    files
}

fn open(files: FileSet) -> Result<Checkpoint> {
    statelens_formats::open(files, &Limits::default(), &mut Unwatched)
}

fn strip(prefix: &str) -> Edit {
    Edit { strip_prefix: prefix.into(), ..Edit::default() }
}

fn select(pattern: &str) -> Edit {
    Edit { select: vec![pattern.parse().unwrap()], ..Edit::default() }
}

fn rename(rules: &[&str]) -> Edit {
    let rename = rules.iter().map(|rule| Rename::parse(rule).unwrap()).collect();
    Edit { rename, ..Edit::default() }
}

/// Returns the versions in `_metadata` of a dict, in order.
fn versions(checkpoint: &Checkpoint, id: ValueId) -> Vec<String> {
    let named = checkpoint.named_attributes(id);
    let Some((_, metadata)) = named.iter().find(|(name, _)| **name == "_metadata") else {
        return Vec::new();
    };
    let Value::Dict(modules) = checkpoint.value(checkpoint.resolve(*metadata)) else { panic!() };
    let version = |id: ValueId| match checkpoint.value(checkpoint.resolve(id)) {
        Value::Dict(dict) => match checkpoint.value(dict.entries[0].1) {
            Value::Int(version) => version.to_string(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    modules.entries.iter().map(|(module, id)| format!("{module}={}", version(*id))).collect()
}

fn keys(checkpoint: &Checkpoint) -> Vec<String> {
    checkpoint.leaves().iter().map(|leaf| leaf.flat.to_string()).collect()
}
