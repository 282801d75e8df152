//! Merges the data that belongs to a dict or a file rather than to one key: Python attributes of
//! dicts such as `_metadata`, the `__metadata__` of safetensors, and attributes of HDF5.

use std::collections::HashSet;

use statelens_checkpoint::{
    Builder, Dict, DictClass, DictKey, Finding, FindingKind, Grade, Result, Text, Value, ValueId,
};

/// The name of an attribute that is merged entry by entry: the versions of modules.
const VERSIONS: &str = "_metadata";
/// The maximum number of conflicts and names that a finding lists.
const NAMED: usize = 8;

/// Attributes that differ between two checkpoints or that the first format has no place for.
#[derive(Debug, Default)]
pub(super) struct Unmerged {
    /// Names with both values; the last is kept.
    contradictions: Vec<String>,
    /// Names that are left out.
    left_out: Vec<String>,
}

/// Two dicts that are merged into the first.
pub(super) struct MergedDicts<'a> {
    pub(super) into: ValueId,
    pub(super) from: ValueId,
    /// The key of both; empty for the root.
    pub(super) key: &'a str,
    /// Whether both are of the same format, so that attributes of the file mean the same.
    pub(super) is_same_format: bool,
    /// The name of the metadata of the second file, if its format has any.
    pub(super) file_metadata: Option<&'static str>,
}

impl Unmerged {
    /// Adds the attributes of the second dict to the first.
    pub(super) fn merge(&mut self, builder: &mut Builder, dicts: &MergedDicts<'_>) -> Result<()> {
        self.raw(builder, dicts);
        self.python(builder, dicts)
    }

    /// Returns the findings, which make writing the merged checkpoint a loss.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let finding = |title: &str, names: &[String], end: &str| {
            let shown = names.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ");
            let more = match names.len().saturating_sub(NAMED) {
                0 => String::new(),
                more => format!("; and {more} more"),
            };
            Finding::new(Grade::Warning, title)
                .kind(FindingKind::LeftOut)
                .detail(format!("{shown}{more}.{end}"))
        };
        let mut findings = Vec::new();
        if !self.contradictions.is_empty() {
            let title = "metadata differs between the checkpoints, and only the last is kept";
            findings.push(finding(title, &self.contradictions, ""));
        }
        if !self.left_out.is_empty() {
            let title = "metadata of later checkpoints is left out";
            let end = " The format of the first checkpoint has no place for it.";
            findings.push(finding(title, &self.left_out, end));
        }
        findings
    }

    fn contradiction(&mut self, name: &str, old: &str, new: &str) {
        self.contradictions.push(format!("`{name}` is {} and {}", short(old), short(new)));
    }

    fn raw(&mut self, builder: &mut Builder, dicts: &MergedDicts<'_>) {
        let new = builder.raw_attributes(dicts.from).to_vec();
        if new.is_empty() {
            return;
        }
        let path = |name: &Text| match (dicts.file_metadata, dicts.key) {
            (Some(metadata), "") => format!("{metadata}.{name}"),
            (None, "") => format!("@{name}"),
            (_, key) => format!("{key}@{name}"),
        };
        if !dicts.is_same_format {
            // `format` says which framework wrote the file; it is written again.
            let names = new.iter().filter(|(name, _)| *name != "format");
            self.left_out.extend(names.map(|(name, _)| format!("`{}`", path(name))));
            return;
        }
        let new_types = builder.attribute_types(dicts.from).to_vec();
        let mut merged = builder.raw_attributes(dicts.into).to_vec();
        let mut types = builder.attribute_types(dicts.into).to_vec();
        for (name, text) in new {
            match merged.iter_mut().find(|(known, _)| *known == name) {
                Some((_, old)) if *old == text => continue,
                Some((_, old)) => {
                    self.contradiction(&path(&name), &old.to_lossy(), &text.to_lossy());
                    *old = text;
                }
                None => merged.push((name.clone(), text)),
            }
            types.retain(|(known, _)| *known != name);
            types.extend(new_types.iter().filter(|(known, _)| *known == name).cloned());
        }
        builder.set_raw_attributes(dicts.into, merged);
        builder.set_attribute_types(dicts.into, types);
    }

    fn python(&mut self, builder: &mut Builder, dicts: &MergedDicts<'_>) -> Result<()> {
        let Some(new) = builder.attributes(dicts.from) else { return Ok(()) };
        let Some(old) = builder.attributes(dicts.into) else {
            // A plain dict has no attributes.
            if let Some(Value::Dict(Dict { class: class @ DictClass::Dict, .. })) =
                builder.value_mut(dicts.into)
            {
                *class = DictClass::Ordered;
            }
            builder.set_attributes(dicts.into, new);
            return Ok(());
        };
        let (old, new) = (resolved(builder, old), resolved(builder, new));
        let start = if dicts.key.is_empty() { "@".to_owned() } else { format!("{}@", dicts.key) };
        // Dicts to merge, the start of the names in them, and whether their dicts are merged, too.
        let mut open = vec![(old, new, start, true)];
        while let Some((old, new, start, is_top)) = open.pop() {
            let entries = match builder.value_mut(new) {
                Some(Value::Dict(Dict { entries, .. })) => std::mem::take(entries),
                _ => continue,
            };
            for (key, id) in entries {
                let known = match builder.value(old) {
                    Some(Value::Dict(dict)) => {
                        dict.entries.iter().position(|(known, _)| *known == key)
                    }
                    _ => None,
                };
                let Some(Value::Dict(Dict { entries, .. })) = builder.value_mut(old) else {
                    continue;
                };
                let Some(at) = known else {
                    entries.push((key, id));
                    continue;
                };
                let before = entries[at].1;
                if is_top && key == DictKey::from(VERSIONS) {
                    let (before, id) = (resolved(builder, before), resolved(builder, id));
                    open.push((before, id, format!("{start}{VERSIONS}."), false));
                } else if !same(builder, before, id) {
                    let (one, other) = (text(builder, before), text(builder, id));
                    self.contradiction(&format!("{start}{key}"), &one, &other);
                    if let Some(Value::Dict(Dict { entries, .. })) = builder.value_mut(old) {
                        entries[at].1 = id;
                    }
                }
            }
        }
        Ok(())
    }
}

fn resolved(builder: &Builder, id: ValueId) -> ValueId {
    match builder.value(id) {
        Some(Value::Link(target)) => *target,
        _ => id,
    }
}

/// Returns whether two values are equal. Tensors are equal only to themselves.
pub(super) fn same(builder: &Builder, one: ValueId, other: ValueId) -> bool {
    let (mut open, mut seen) = (vec![(one, other)], HashSet::new());
    while let Some((one, other)) = open.pop() {
        let (one, other) = (resolved(builder, one), resolved(builder, other));
        if one == other || !seen.insert((one, other)) {
            continue;
        }
        let (Some(a), Some(b)) = (builder.value(one), builder.value(other)) else { return false };
        match (a, b) {
            (Value::Dict(a), Value::Dict(b))
                if a.class == b.class
                    && a.entries.len() == b.entries.len()
                    && a.entries.iter().zip(&b.entries).all(|(a, b)| a.0 == b.0) => {}
            (Value::List(a), Value::List(b))
                if a.class == b.class && a.items.len() == b.items.len() => {}
            (Value::Tuple(a), Value::Tuple(b))
                if a.class == b.class && a.items.len() == b.items.len() => {}
            (a, b) if a.children().is_empty() && a == b && !matches!(a, Value::Tensor(_)) => {}
            _ => return false,
        }
        open.extend(a.children().into_iter().zip(b.children()));
    }
    true
}

/// Returns a short text for a value in a finding.
fn text(builder: &Builder, id: ValueId) -> String {
    let id = resolved(builder, id);
    match builder.value(id) {
        Some(Value::Str(text)) => text.to_string(),
        Some(Value::Int(int)) => int.to_string(),
        Some(Value::Bool(value)) => if *value { "True" } else { "False" }.to_owned(),
        Some(Value::Dict(dict)) => {
            let entries = dict.entries.iter().take(NAMED).map(|(key, id)| {
                match builder.value(resolved(builder, *id)) {
                    Some(Value::Int(int)) => format!("{key}: {int}"),
                    Some(value) => format!("{key}: {}", value.kind()),
                    None => key.to_string(),
                }
            });
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
        Some(value) => format!("a {}", value.kind()),
        None => String::new(),
    }
}

/// The maximum length of a value in a finding.
const MAX_TEXT: usize = 60;

fn short(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
