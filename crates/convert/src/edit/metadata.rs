//! Finds entries in the metadata of a file that name keys which an edit renamed or left out.
//!
//! Their texts are those of other programs, so they are listed and never changed: a text or a name
//! that is a key, and a key anywhere in a JSON text, such as the bits of each weight.

use std::collections::HashSet;

use serde_json::Value as Json;
use statelens_checkpoint::{Checkpoint, Finding, FindingKind, Grade};

use super::Change;

/// The maximum number of entries that the finding names.
const NAMED: usize = 5;

/// Returns a finding that lists the entries of the metadata with keys of the source that the result
/// does not have.
pub(super) fn stale(edited: &Checkpoint, changes: impl FnOnce() -> Vec<Change>) -> Option<Finding> {
    let entries = edited.raw_attributes(edited.root()).iter();
    // Most files only have the framework.
    let entries: Vec<_> = entries.filter(|(name, _)| *name != "format").collect();
    if entries.is_empty() {
        return None;
    }
    let changes = changes();
    let kept: HashSet<&str> = changes.iter().filter_map(|change| change.new.as_deref()).collect();
    let gone: HashSet<&str> = changes
        .iter()
        .map(|change| change.old.as_str())
        .filter(|old| !kept.contains(old))
        .collect();
    let mut names: Vec<String> = entries
        .iter()
        .map(|(name, text)| (name.to_lossy(), text.to_lossy()))
        .filter(|(name, text)| gone.contains(&**name) || names_one_of(text, &gone))
        .map(|(name, _)| format!("`{name}`"))
        .collect();
    let more = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    let mut named = names.join(", ");
    if more > 0 {
        named += &format!(" and {more} more");
    }
    (!named.is_empty()).then(|| {
        Finding::new(Grade::Note, "the metadata names keys that were renamed or left out")
            .detail(format!("{named}: the texts are written unchanged."))
            .kind(FindingKind::LeftOut)
    })
}

/// Returns whether a text is one of `keys`, or JSON with one of them. Iterative.
fn names_one_of(text: &str, keys: &HashSet<&str>) -> bool {
    if keys.contains(text) {
        return true;
    }
    if !text.trim_start().starts_with(['{', '[']) {
        return false;
    }
    let Ok(json) = serde_json::from_str::<Json>(text) else { return false };
    let mut open = vec![&json];
    while let Some(value) = open.pop() {
        match value {
            Json::String(text) if keys.contains(&**text) => return true,
            Json::Array(items) => open.extend(items),
            Json::Object(entries) if entries.keys().any(|key| keys.contains(&**key)) => {
                return true;
            }
            Json::Object(entries) => open.extend(entries.values()),
            _ => {}
        }
    }
    false
}
