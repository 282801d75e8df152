//! Merges the dicts of several checkpoints, key by key, and the attributes of the dicts.

mod attributes;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use statelens_checkpoint::{
    Builder, Checkpoint, Dict, Error, FileId, FileSet, Finding, FormatInfo, Limits, Memory, Result,
    Setting, Value, ValueId, advice,
};

use attributes::{MergedDicts, Unmerged, same};

/// Merges checkpoints one after another. Containers other than dicts are treated as single values.
#[derive(Debug)]
pub struct Merging {
    builder: Builder,
    files: FileSet,
    root: Option<(ValueId, FormatInfo)>,
    findings: Vec<Finding>,
    /// The names of the checkpoints, and the first value id of each.
    parts: Vec<(String, u32)>,
    collisions: Vec<Collision>,
    unmerged: Unmerged,
}

/// A key that two checkpoints have, if it is a tensor (values are not compared) or the values
/// differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collision {
    /// The key, its steps joined with dots.
    pub key: String,
    /// The checkpoint with the replaced value.
    pub first: String,
    /// The checkpoint with the new value.
    pub last: String,
}

impl Merging {
    /// Creates an empty merge.
    pub fn new(limits: &Limits) -> Self {
        Self {
            builder: Builder::new(limits),
            files: FileSet::default().within(limits),
            root: None,
            findings: Vec::new(),
            parts: Vec::new(),
            collisions: Vec::new(),
            unmerged: Unmerged::default(),
        }
    }

    /// Adds the checkpoint of some files, opening the first of them with `open`. If a key exists
    /// with another value, the new value replaces it, and the collision is recorded.
    pub fn add(
        &mut self,
        name: &str,
        files: FileSet,
        open: &mut dyn FnMut(FileSet) -> Result<Checkpoint>,
    ) -> Result<()> {
        let main = files.main()?;
        // Pads the set so that the new files keep their ids in the merged set.
        let before = self.files.count();
        let mut shifted = FileSet::default().within(files.limits());
        if let Some(scratch) = files.scratch() {
            shifted = shifted.with_scratch(scratch.clone());
            self.files = std::mem::take(&mut self.files).with_scratch(scratch.clone());
        }
        for _ in 0..before {
            shifted.push("", Arc::new(Memory::from(Vec::new())));
        }
        for (_, file) in files.iter() {
            shifted.push_file(file.clone());
            self.files.push_file(file.clone());
        }
        let main = FileId(main.0 + before as u32);
        let part = open(shifted.opened_at(main))?;
        let Value::Dict(_) = part.value(part.root()) else {
            let kind = part.value(part.root()).kind();
            return Err(Error::unsupported(format!("it holds a {kind}, which has no keys"))
                .in_file(name)
                .advice("Only dicts can be merged."));
        };
        let top = self.builder.append(&part)?;
        self.parts.push((name.to_owned(), top.0 - part.root().0));
        for finding in &part.findings {
            let place = match finding.place.is_empty() {
                true => name.to_owned(),
                false => format!("{name}: {}", finding.place),
            };
            self.findings.push(finding.clone().place(place));
        }
        match self.root.take() {
            None => self.root = Some((top, part.format.clone())),
            Some((root, format)) => {
                let same_format = format.id == part.format.id;
                self.root = Some((root, format));
                self.merge((root, top), same_format, part.format.traits.file_metadata)?;
            }
        }
        Ok(())
    }

    /// Returns the checkpoint, in the format of the first one, and the keys that several had. Fails
    /// if nothing was added.
    pub fn finish(self) -> Result<(Checkpoint, Vec<Collision>)> {
        let Self { builder, files, root, mut findings, collisions, unmerged, .. } = self;
        findings.extend(unmerged.findings());
        let (root, format) = root.ok_or_else(|| Error::refused("there is nothing to merge"))?;
        Ok((builder.finish(root, format, files, findings)?, collisions))
    }

    /// Moves the entries of the second dict into the first.
    fn merge(
        &mut self,
        (into, from): (ValueId, ValueId),
        is_same_format: bool,
        file_metadata: Option<&'static str>,
    ) -> Result<()> {
        let mut open = vec![(into, from, String::new())];
        while let Some((into, from, path)) = open.pop() {
            let dicts = MergedDicts { into, from, key: &path, is_same_format, file_metadata };
            self.unmerged.merge(&mut self.builder, &dicts)?;
            let new = match self.builder.value_mut(from) {
                Some(Value::Dict(Dict { entries, .. })) => std::mem::take(entries),
                _ => continue,
            };
            let known: HashMap<String, ValueId> = match self.builder.value(into) {
                Some(Value::Dict(Dict { entries, .. })) => {
                    entries.iter().map(|(key, id)| (key.to_string(), *id)).collect()
                }
                _ => continue,
            };
            let mut added = Vec::new();
            for (key, id) in new {
                let text = key.to_string();
                let path = if path.is_empty() { text.clone() } else { format!("{path}.{text}") };
                let Some(old) = known.get(&text).copied() else {
                    added.push((key, id));
                    continue;
                };
                let value = |id| self.builder.value(id);
                match (value(old), value(id)) {
                    (Some(Value::Dict(_)), Some(Value::Dict(_))) => open.push((old, id, path)),
                    (Some(one), Some(other)) if is_plain(one) && one == other => {}
                    (Some(one), Some(_))
                        if self.is_plain_list(one) && same(&self.builder, old, id) =>
                    {
                        if let Some(value) = self.builder.value_mut(id) {
                            *value = Value::Link(old);
                        }
                    }
                    _ => self.replace(old, id, path)?,
                }
            }
            if let Some(Value::Dict(Dict { entries, .. })) = self.builder.value_mut(into) {
                entries.extend(added);
            }
        }
        Ok(())
    }

    /// Replaces a value with another one. Values tied to either are then tied to the result.
    fn replace(&mut self, old: ValueId, new: ValueId, key: String) -> Result<()> {
        let below = self.below(old);
        if below.len() > 1 {
            self.check_links(&below, &key)?;
        }
        for id in below {
            if let Some(value) = self.builder.value_mut(id) {
                *value = Value::None;
            }
        }
        let raw = self.builder.raw_attributes(new).to_vec();
        self.builder.set_raw_attributes(old, raw);
        let moved =
            self.builder.value_mut(new).map(|slot| std::mem::replace(slot, Value::Link(old)));
        if let (Some(slot), Some(moved)) = (self.builder.value_mut(old), moved) {
            *slot = moved;
        }
        let name = |id: ValueId| {
            let part = self.parts.iter().rev().find(|(_, first)| *first <= id.0);
            part.map_or(String::new(), |(name, _)| name.clone())
        };
        self.collisions.push(Collision { key, first: name(old), last: name(new) });
        Ok(())
    }

    /// Returns whether the value is a list or tuple of plain values.
    fn is_plain_list(&self, value: &Value) -> bool {
        let items = match value {
            Value::List(list) => &list.items,
            Value::Tuple(tuple) => &tuple.items,
            _ => return false,
        };
        items.iter().all(|item| self.builder.value(*item).is_some_and(is_plain))
    }

    /// Returns a value and everything below it.
    fn below(&self, id: ValueId) -> Vec<ValueId> {
        let mut found = vec![id];
        let mut at = 0;
        while let Some(id) = found.get(at) {
            found.extend(self.builder.value(*id).map(Value::children).unwrap_or_default());
            at += 1;
        }
        found
    }

    /// Fails if another value is the same object as a part of the removed ones.
    fn check_links(&self, gone: &[ValueId], key: &str) -> Result<()> {
        let inside: HashSet<ValueId> = gone[1..].iter().copied().collect();
        let mut id = 0;
        while let Some(value) = self.builder.value(ValueId(id)) {
            if matches!(value, Value::Link(target) if inside.contains(target))
                && !inside.contains(&ValueId(id))
            {
                return Err(Error::refused(format!(
                    "`{key}` can't be replaced, because another entry shares a part of it"
                ))
                .advice(advice![
                    "Leave it out of the later checkpoint with ",
                    Setting::Convert,
                    " first."
                ]));
            }
            id += 1;
        }
        Ok(())
    }
}

/// Returns whether values of this kind contain no others, so that equal ones are interchangeable.
fn is_plain(value: &Value) -> bool {
    matches!(
        value,
        Value::None
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Float(_)
            | Value::Complex(..)
            | Value::Str(_)
            | Value::Bytes { .. }
            | Value::DType { .. }
            | Value::Device(_)
    )
}
