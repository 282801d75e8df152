//! Joins several checkpoints into one by merging their top-level dicts.

use foldhash::{HashMap, HashMapExt};
use statelens_checkpoint::{
    Builder, Checkpoint, DType, Dict, DictClass, DictKey, Error, FileSet, Finding, FormatInfo,
    Grade, Layout, Limits, NumpyType, Result, Tensor, Text, Value, ValueId, order,
};

/// Joins checkpoints whose files are in one set, with the same file IDs.
pub(super) struct Join<'a> {
    builder: Builder,
    class: DictClass,
    format: Option<FormatInfo>,
    entries: Vec<JoinedEntry>,
    /// The places of keys in the index of the set, if it has one.
    places: Option<&'a HashMap<Text, u32>>,
    /// The entry of the key at each place of the index, or [`NONE`].
    placed: Vec<u32>,
    /// The entries whose keys are not in the index.
    by_key: HashMap<Text, u32>,
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
    /// The place of its key in the index, or [`NONE`].
    place: u32,
}

/// No entry, no place.
const NONE: u32 = u32::MAX;

impl<'a> Join<'a> {
    /// Creates it for a set with an index that has keys at these places, or without an index.
    pub(super) fn new(limits: &Limits, places: Option<&'a HashMap<Text, u32>>) -> Self {
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
            places,
            placed: vec![NONE; places.map_or(0, HashMap::len)],
            by_key: HashMap::new(),
            raw: Vec::new(),
            attributes: None,
            findings: Vec::new(),
            names: Vec::new(),
        }
    }

    /// Returns whether nothing was added.
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Adds the dict of the file `name`. If a key has two values, keeps the one in the file that
    /// `owner` names for its place in the index, else the earlier one.
    pub(super) fn add<'o>(
        &mut self,
        name: &str,
        part: Checkpoint,
        owner: impl Fn(u32) -> Option<&'o str>,
    ) -> Result<()> {
        if !matches!(part.value(part.root()), Value::Dict(_)) {
            let kind = part.value(part.root()).kind();
            return Err(Error::unsupported(format!(
                "this shard does not hold a dict of tensors, but a `{kind}`"
            ))
            .in_file(name)
            .advice("Open the shard by itself, under a name without its number."));
        }
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
            None => self.format = Some(part.format.clone()),
        }
        let is_gguf = part.format.id == "gguf";
        let top = self.builder.absorb(part)?;
        self.attributes = self.attributes.or(self.builder.attributes(top));
        let Some(Value::Dict(Dict { class, entries })) =
            self.builder.value_mut(top).map(|root| std::mem::replace(root, Value::None))
        else {
            return Ok(());
        };
        let index = self.names.len();
        self.names.push(name.to_owned());
        if index == 0 {
            self.class = class;
        }
        let is_repeated =
            |key: &DictKey| is_gguf && matches!(key, DictKey::Str(text) if *text == "metadata");
        for (key, id) in entries {
            // The first part of a GGUF has the metadata of all parts; the others only identify
            // themselves.
            if index > 0 && is_repeated(&key) {
                continue;
            }
            let text = match &key {
                DictKey::Str(text) => text.clone(),
                key => key.to_string().into(),
            };
            let listed = self.places.and_then(|places| places.get_key_value(&text));
            let place = listed.map_or(NONE, |(_, place)| *place);
            let key = match (key, listed) {
                // One text is enough for the key and the index: a set may have half a million.
                (DictKey::Str(_), Some((listed, _))) => DictKey::Str(listed.clone()),
                (key, _) => key,
            };
            let known = match place {
                NONE => self.by_key.get(&text).copied(),
                place => self.placed.get(place as usize).copied().filter(|at| *at != NONE),
            };
            let entry = JoinedEntry { key, id, part: index, place };
            match known {
                None => self.insert(text, entry),
                Some(at) => self.twice(&text, at as usize, entry, owner(place)),
            }
        }
        Ok(())
    }

    /// Adds an entry whose key is new.
    fn insert(&mut self, key: Text, entry: JoinedEntry) {
        let at = self.entries.len() as u32;
        match self.placed.get_mut(entry.place as usize) {
            Some(placed) => *placed = at,
            None => {
                self.by_key.insert(key, at);
            }
        }
        self.entries.push(entry);
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

    /// Returns the name of the file that holds the key at a place of the index.
    pub(super) fn file_at(&self, place: usize) -> Option<&str> {
        let entry = self.entries.get(*self.placed.get(place)? as usize)?;
        Some(self.names.get(entry.part).map_or("", String::as_str))
    }

    /// Adds a tensor that is known only by its key, at a place of the index, and by the reason why it
    /// is missing.
    pub(super) fn add_missing(&mut self, place: usize, key: Text, why: Text) -> Result<()> {
        let tensor = Tensor::new(self.unknown.clone(), vec![0], Layout::Missing(why));
        let tensor = self.builder.push_tensor(tensor)?;
        let id = self.builder.push(Value::Tensor(tensor))?;
        let (part, place) = (usize::MAX, u32::try_from(place).unwrap_or(NONE));
        let entry = JoinedEntry { key: DictKey::Str(key.clone()), id, part, place };
        self.insert(key, entry);
        Ok(())
    }

    pub(super) fn finding(&mut self, finding: Finding) {
        self.findings.insert(0, finding);
    }

    /// Sorts the entries by the places of their keys in the index; others come last.
    pub(super) fn order(&mut self) {
        if !self.entries.is_sorted_by_key(|entry| entry.place) {
            order::by_key(&mut self.entries, |entry| entry.place);
        }
        // The positions in them are no longer valid.
        self.placed.clear();
        self.by_key.clear();
    }

    /// Returns the keys of tensors that are not in the index. Tied names and plain values may be
    /// absent from an index.
    pub(super) fn unlisted(&self) -> Vec<&Text> {
        let is_tensor = |at: &u32| {
            let entry = self.entries.get(*at as usize);
            let value = entry.and_then(|entry| self.builder.value(entry.id));
            matches!(value, Some(Value::Tensor(_) | Value::Array(_)))
        };
        let tensors = self.by_key.iter().filter(|(_, at)| is_tensor(at));
        tensors.map(|(key, _)| key).collect()
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
