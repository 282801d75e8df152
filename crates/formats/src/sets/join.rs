//! Joins several checkpoints into one by merging their top-level dicts.

use std::collections::HashMap;

use statelens_checkpoint::{
    Builder, Checkpoint, DType, Dict, DictClass, DictKey, Error, FileSet, Finding, FormatInfo,
    Grade, Layout, Limits, NumpyType, Result, Tensor, Text, Value, ValueId, order,
};

/// Joins checkpoints whose files are in one set, with the same file IDs.
pub(super) struct Join {
    builder: Builder,
    class: DictClass,
    format: Option<FormatInfo>,
    entries: Vec<JoinedEntry>,
    by_key: HashMap<Text, usize>,
    raw: Vec<(Text, Text)>,
    /// Python attributes of the first dict that has any.
    attributes: Option<ValueId>,
    findings: Vec<Finding>,
    /// File names, for messages.
    names: Vec<String>,
    /// Number of keys that were found twice.
    twice: usize,
    /// The dtype of tensors that are entirely unknown.
    unknown: DType,
}

struct JoinedEntry {
    key: DictKey,
    id: ValueId,
    part: usize,
}

impl Join {
    pub(super) fn new(limits: &Limits) -> Self {
        let unknown = NumpyType {
            name: "unknown".into(),
            code: "V0".into(),
            itemsize: 0,
            words: Vec::new(),
            fields: Vec::new(),
        };
        Self {
            twice: 0,
            unknown: DType::Numpy(unknown.into()),
            builder: Builder::new(limits),
            class: DictClass::default(),
            format: None,
            entries: Vec::new(),
            by_key: HashMap::new(),
            raw: Vec::new(),
            attributes: None,
            findings: Vec::new(),
            names: Vec::new(),
        }
    }

    /// Adds the content of the file `name`. If a key has two values, keeps the one in the file that
    /// `owner` names, else the earlier one.
    pub(super) fn add<'o>(
        &mut self,
        name: &str,
        part: &Checkpoint,
        owner: impl Fn(&Text) -> Option<&'o str>,
    ) -> Result<()> {
        let Value::Dict(Dict { class, entries }) = part.value(part.root()) else {
            let kind = part.value(part.root()).kind();
            return Err(Error::unsupported(format!(
                "this shard does not hold a dict of tensors, but a `{kind}`"
            ))
            .in_file(name)
            .advice("Open the shard by itself, under a name without its number."));
        };
        let top = self.builder.append(part)?;
        let shift = top.0 - part.root().0;
        let index = self.names.len();
        self.names.push(name.to_owned());
        let is_repeated = |key: &DictKey| {
            part.format.id == "gguf" && matches!(key, DictKey::Str(text) if *text == "metadata")
        };
        for (key, id) in entries {
            // The first part of a GGUF has the metadata of all parts; the others only identify
            // themselves.
            if index > 0 && is_repeated(key) {
                continue;
            }
            let entry = JoinedEntry { key: key.clone(), id: ValueId(id.0 + shift), part: index };
            let text = match key {
                DictKey::Str(text) => text.clone(),
                key => key.to_string().into(),
            };
            match self.by_key.get(&text).copied() {
                None => {
                    self.by_key.insert(text, self.entries.len());
                    self.entries.push(entry);
                }
                Some(at) => self.twice(&text, at, entry, owner(&text)),
            }
        }
        let attributes = part.attributes(part.root()).map(|id| ValueId(id.0 + shift));
        self.attributes = self.attributes.or(attributes);
        for (raw, value) in part.raw_attributes(part.root()) {
            if !self.raw.iter().any(|(known, _)| known == raw) {
                self.raw.push((raw.clone(), value.clone()));
            }
        }
        for finding in &part.findings {
            self.find(name, finding);
        }
        match &mut self.format {
            Some(format) => format.facts.retain(|fact| part.format.facts.contains(fact)),
            None => {
                self.class = class.clone();
                self.format = Some(part.format.clone());
            }
        }
        Ok(())
    }

    fn twice(&mut self, key: &Text, at: usize, entry: JoinedEntry, owner: Option<&str>) {
        let Some(old) = self.entries.get_mut(at) else { return };
        let (one, other) = (&self.names[old.part], &self.names[entry.part]);
        let belongs = owner == Some(other);
        let kept = if belongs { other } else { one };
        let finding = match belongs || owner == Some(one) {
            // An overlay: shards with new values next to those that they replace.
            true => Finding::new(Grade::Warning, format!("Two shards hold {key}"))
                .detail(format!(
                    "It is in {one} and in {other}. The index names {kept}, so that value is \
                     used. Libraries that load every shard may take the other one."
                ))
                .advice("Convert the checkpoint: the copy has only the value that the index names.")
                .refused(),
            false => Finding::new(Grade::Damage, format!("Two shards hold {key}")).detail(format!(
                "It is in {one} and in {other}; the one in {kept} is shown, and the other one is \
                 hidden."
            )),
        };
        let finding = finding.place(key.to_string());
        self.twice += 1;
        if self.twice <= MAX_DUPLICATES {
            self.findings.push(finding);
        }
        if belongs {
            *old = entry;
        }
    }

    /// Adds a finding of one file. A finding that several files have is added once.
    fn find(&mut self, name: &str, finding: &Finding) {
        let same = |known: &&mut Finding| {
            known.title == finding.title
                && known.detail == finding.detail
                && known.call == finding.call
        };
        if let Some(known) = self.findings.iter_mut().find(same) {
            if !known.place.ends_with(MORE) {
                known.place.push_str(MORE);
            }
            return;
        }
        let place = match finding.place.is_empty() {
            true => name.to_owned(),
            false => format!("{name}: {}", finding.place),
        };
        self.findings.push(finding.clone().place(place));
    }

    /// Returns the name of the file that holds a key.
    pub(super) fn file_of(&self, key: &Text) -> Option<&str> {
        let entry = self.by_key.get(key).and_then(|at| self.entries.get(*at));
        entry.map(|entry| self.names.get(entry.part).map_or("", String::as_str))
    }

    /// Adds a tensor that is known only by its key and by the reason why it is missing.
    pub(super) fn add_missing(&mut self, key: Text, why: Text) -> Result<()> {
        let tensor = Tensor::new(self.unknown.clone(), vec![0], Layout::Missing(why));
        let tensor = self.builder.push_tensor(tensor)?;
        let id = self.builder.push(Value::Tensor(tensor))?;
        self.by_key.insert(key.clone(), self.entries.len());
        self.entries.push(JoinedEntry { key: DictKey::Str(key), id, part: usize::MAX });
        Ok(())
    }

    pub(super) fn finding(&mut self, finding: Finding) {
        self.findings.insert(0, finding);
    }

    /// Sorts the entries by the order of these keys; others come last.
    pub(super) fn order<'a>(&mut self, keys: impl Iterator<Item = &'a Text>) {
        let mut rank = vec![usize::MAX; self.entries.len()];
        for (place, key) in keys.enumerate() {
            if let Some(at) = self.by_key.get(key) {
                rank[*at] = place;
            }
        }
        let mut ranked: Vec<(usize, JoinedEntry)> =
            rank.into_iter().zip(std::mem::take(&mut self.entries)).collect();
        order::by_key(&mut ranked, |(rank, _)| *rank);
        self.entries = ranked.into_iter().map(|(_, entry)| entry).collect();
        // The positions in it are no longer valid.
        self.by_key.clear();
    }

    /// Returns the keys of tensors for which `is_known` returns false. Tied names and plain values
    /// may be absent from an index.
    pub(super) fn unknown(&self, is_known: impl Fn(&Text) -> bool) -> Vec<&Text> {
        let is_tensor = |at: &usize| {
            let value = self.entries.get(*at).and_then(|entry| self.builder.value(entry.id));
            matches!(value, Some(Value::Tensor(_) | Value::Array(_)))
        };
        let tensors = self.by_key.iter().filter(|(_, at)| is_tensor(at));
        tensors.map(|(key, _)| key).filter(|key| !is_known(key)).collect()
    }

    /// Returns the joined checkpoint, or `None` if nothing was added.
    pub(super) fn finish(
        mut self,
        facts: Vec<(String, String)>,
        files: FileSet,
    ) -> Result<Option<Checkpoint>> {
        let Some(mut format) = self.format else { return Ok(None) };
        format.facts.splice(0..0, facts);
        if let more @ 1.. = self.twice.saturating_sub(MAX_DUPLICATES) {
            let title = format!("{more} more keys are in two shards");
            self.findings.push(Finding::new(Grade::Damage, title));
        }
        let entries = self.entries.into_iter().map(|entry| (entry.key, entry.id)).collect();
        let root = self.builder.push(Value::Dict(Dict { class: self.class, entries }))?;
        if let Some(attributes) = self.attributes {
            self.builder.set_attributes(root, attributes);
        }
        if !self.raw.is_empty() {
            self.builder.set_raw_attributes(root, self.raw);
        }
        self.builder.finish(root, format, files, self.findings).map(Some)
    }
}

/// The maximum number of findings about keys in two shards.
const MAX_DUPLICATES: usize = 20;

/// Appended to the place of a finding that occurs in several files.
const MORE: &str = ", and other shards";
