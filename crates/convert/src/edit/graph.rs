//! Edits TensorFlow's object graph along with the keys that it names.

use std::collections::{BTreeMap, HashMap};

use std::sync::Arc;

use statelens_checkpoint::{
    Checkpoint, DictKey, Finding, FindingKind, Grade, Result, Value, ValueId, capitalised,
};
use statelens_formats::tensorflow::edit_graph;

/// Returns whether the key is that of an object graph, which no rule renames.
pub(super) fn is_graph(source: &Checkpoint, key: &str) -> bool {
    source.format.traits.graph_key == Some(key)
}

/// Returns the checkpoint with the object graph for the new keys; `None` if it has no graph, or
/// nothing changes.
pub(super) fn follow(
    edited: &Checkpoint,
    source: &Checkpoint,
    moved: &HashMap<ValueId, ValueId>,
) -> Result<Option<Checkpoint>> {
    let Some((id, graph)) = graph_of(edited) else { return Ok(None) };
    let changes = super::changes(source, edited, moved);
    let new: BTreeMap<&str, Option<&str>> =
        changes.iter().map(|change| (change.old.as_str(), change.new.as_deref())).collect();
    if changes.iter().all(|change| change.new.as_ref() == Some(&change.old)) {
        return Ok(None);
    }
    let mut builder = edited.edit();
    let finding = match edit_graph(&graph, &|key| new_key(&new, key)) {
        Ok(graph) => {
            if let Some(Value::Bytes { data, .. }) = builder.value_mut(id) {
                *data = graph.bytes.into();
            }
            let parts = [(graph.renamed, "renamed in it"), (graph.removed, "removed from it")];
            let parts =
                parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| match count {
                    1 => format!("1 key is {what}"),
                    count => format!("{count} keys are {what}"),
                });
            let parts: Vec<String> = parts.collect();
            if parts.is_empty() {
                return Ok(None);
            }
            match graph.unclear.first() {
                None => Finding::new(Grade::Note, "the object graph follows the new keys")
                    .detail(format!("{}.", capitalised(&parts.join(", ")))),
                Some(key) => Finding::new(Grade::Warning, "objects of the graph keep their names")
                    .detail(format!(
                        "`{key}` has the path of another object. Restore it by the old names."
                    )),
            }
        }
        Err(error) => Finding::new(Grade::Warning, "the object graph keeps the old keys")
            .detail(error.to_string()),
    };
    let mut edited = builder.rebuild(edited)?;
    edited.findings.push(finding.kind(FindingKind::LeftOut));
    Ok(Some(edited))
}

/// Returns the new key of a value. An object with several tensors, such as a table, is named by the
/// start of their keys. A key that the checkpoint does not have is unchanged.
fn new_key(new: &BTreeMap<&str, Option<&str>>, key: &str) -> Option<String> {
    let mut is_known = false;
    for (old, new) in new.range(key..).take_while(|(old, _)| old.starts_with(key)) {
        is_known = true;
        if let Some(start) = new.and_then(|new| new.strip_suffix(&old[key.len()..])) {
            return Some(start.to_owned());
        }
    }
    (!is_known).then(|| key.to_owned())
}

/// Returns the value of the object graph, and its bytes.
fn graph_of(checkpoint: &Checkpoint) -> Option<(ValueId, Arc<[u8]>)> {
    let Value::Dict(root) = checkpoint.value(checkpoint.root()) else { return None };
    let named = |text: &DictKey| is_graph(checkpoint, &text.to_string());
    let (_, id) = root.entries.iter().find(|(key, _)| named(key))?;
    match checkpoint.value(*id) {
        Value::Bytes { data, .. } => Some((*id, data.clone())),
        _ => None,
    }
}
