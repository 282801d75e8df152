//! Keeps a set of shards complete while files of the same names take its place.
//!
//! The old shards get second names (hard links), and the old index is rewritten to name those. The
//! first names are then free to be given to the new shards, one after the other: until the new
//! index is in place, the old index names a complete old set. A process that is killed in between
//! leaves that set; the next run that replaces it removes the second names as it removes all old
//! shards.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;
use statelens_formats::sets::SECOND_NAME;

/// Longer indexes are not rewritten, in bytes.
const MAX_INDEX: u64 = 1 << 28;

/// A rewritten index, and the second names in it.
pub(super) struct RenamedSet {
    pub(super) index: String,
    pub(super) links: Vec<PathBuf>,
}

impl RenamedSet {
    /// Gives those of `targets` that the JSON file `index` names a second name.
    ///
    /// Returns `None` if that is not possible: the index is not JSON, a shard is missing, or the
    /// file system has no hard links. Then nothing has changed.
    pub(super) fn create(index: &Path, targets: &[&Path]) -> io::Result<Option<Self>> {
        if fs::metadata(index)?.len() > MAX_INDEX {
            return Ok(None);
        }
        let Ok(text) = String::from_utf8(fs::read(index)?) else { return Ok(None) };
        let Some(named) = names(&text) else { return Ok(None) };
        let mut set = Self { index: text, links: Vec::new() };
        for target in targets {
            let Some(name) = target.file_name().and_then(|name| name.to_str()) else {
                return Ok(set.undo());
            };
            if !named.contains(name) {
                continue;
            }
            let second = second_name(name);
            let link = target.with_file_name(&second);
            if fs::hard_link(target, &link).is_err() {
                return Ok(set.undo());
            }
            set.links.push(link);
            set.index = set.index.replace(&quoted(name), &quoted(&second));
        }
        // A name may be spelled with escapes, or be part of the text in another way.
        let left = names(&set.index).unwrap_or_default();
        let is_left = |target: &&Path| {
            target
                .file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| left.contains(name))
        };
        if targets.iter().any(is_left) { Ok(set.undo()) } else { Ok(Some(set)) }
    }

    fn undo(self) -> Option<Self> {
        remove(&self.links);
        None
    }
}

/// Removes second names. One that can't be removed is found as an old shard by the next run.
pub(super) fn remove(links: &[PathBuf]) {
    for link in links {
        let _ = fs::remove_file(link);
    }
}

/// Returns the second name of a shard. It keeps the extension, by which loaders choose a reader.
fn second_name(name: &str) -> String {
    let (stem, extension) = name.rsplit_once('.').unwrap_or((name, ""));
    let dot = if extension.is_empty() { "" } else { "." };
    format!("{stem}{SECOND_NAME}{}{dot}{extension}", std::process::id())
}

fn quoted(name: &str) -> String {
    Value::from(name).to_string()
}

/// Returns all strings among the values of a JSON text; `None` if it is not JSON.
fn names(text: &str) -> Option<HashSet<String>> {
    let mut values = vec![serde_json::from_str::<Value>(text).ok()?];
    let mut names = HashSet::new();
    while let Some(value) = values.pop() {
        match value {
            Value::String(name) => {
                names.insert(name);
            }
            Value::Array(items) => values.extend(items),
            Value::Object(fields) => values.extend(fields.into_values()),
            _ => {}
        }
    }
    Some(names)
}
