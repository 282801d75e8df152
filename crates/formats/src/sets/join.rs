//! Joins several checkpoints into one by merging their top-level dicts.

use foldhash::fast::RandomState;
use foldhash::{HashMap, HashMapExt};
use indexmap::IndexMap;
use statelens_checkpoint::{
    Builder, Checkpoint, DType, Dict, DictClass, DictKey, Error, FileSet, Finding, FormatInfo,
    Grade, Layout, Limits, NumpyType, Result, Tensor, Text, Value, ValueId,
};

/// The keys in the index of a set in their order, each with the place of its file among the files.
pub(super) type ListedKeys = IndexMap<Text, u32, RandomState>;

/// Joins checkpoints whose files are in one set, with the same file IDs.
pub(super) struct Join<'a> {
    builder: Builder,
    class: DictClass,
    format: Option<FormatInfo>,
    /// The keys in the index of the set, if it has one.
    listed: Option<&'a ListedKeys>,
    /// The entry of the key at each place of the index.
    placed: Vec<Option<JoinedEntry>>,
    /// The entries whose keys are not in the index.
    others: Vec<JoinedEntry>,
    /// The places of keys in `others`.
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
    /// The place of its file in `names`; [`NOWHERE`] if its file is missing.
    part: u32,
}

const NOWHERE: u32 = u32::MAX;

/// Returns the places in an index of the keys of a shard's dict, in its order.
pub(super) fn places_of(shard: &Checkpoint, listed: &ListedKeys) -> Vec<u32> {
    let Value::Dict(Dict { entries, .. }) = shard.value(shard.root()) else { return Vec::new() };
    let place = |key: &DictKey| match key {
        DictKey::Str(text) => listed.get_index_of(text),
        key => listed.get_index_of(&Text::from(key.to_string())),
    };
    entries.iter().map(|(key, _)| place(key).map_or(NONE, |place| place as u32)).collect()
}

/// The place of a key that is not in the index.
const NONE: u32 = u32::MAX;

impl<'a> Join<'a> {
    /// Creates it for a set with these keys in its index, or without an index.
    pub(super) fn new(limits: &Limits, listed: Option<&'a ListedKeys>) -> Self {
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
            listed,
            placed: listed.into_iter().flatten().map(|_| None).collect(),
            others: Vec::new(),
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

    /// Adds the dict of the file `name`. `places` are those of its keys in the index; it may be
    /// shorter. If a key has two values, keeps the one in the file that `owner` names for its place in
    /// the index, else the earlier one.
    pub(super) fn add<'o>(
        &mut self,
        name: &str,
        part: Checkpoint,
        places: Vec<u32>,
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
        let number = self.names.len() as u32;
        self.names.push(name.to_owned());
        if number == 0 {
            self.class = class;
        }
        let is_repeated =
            |key: &DictKey| is_gguf && matches!(key, DictKey::Str(text) if *text == "metadata");
        let mut places = places.into_iter();
        for (key, id) in entries {
            let place = places.next().unwrap_or(NONE);
            // The first part of a GGUF has the metadata of all parts; the others only identify
            // themselves.
            if number > 0 && is_repeated(&key) {
                continue;
            }
            let entry = JoinedEntry { key, id, part: number };
            match self.listed.and_then(|listed| listed.get_index(place as usize)) {
                Some((text, _)) => self.place(place, text, entry, &owner),
                None => self.add_other(entry),
            }
        }
        Ok(())
    }

    /// Adds an entry whose key is at a place of the index.
    fn place<'o>(
        &mut self,
        place: u32,
        text: &Text,
        mut entry: JoinedEntry,
        owner: impl Fn(u32) -> Option<&'o str>,
    ) {
        // One text is enough for the key and the index: a set may have half a million.
        if let DictKey::Str(key) = &mut entry.key {
            *key = text.clone();
        }
        let known = self.placed.get(place as usize).and_then(|known| Some(known.as_ref()?.part));
        let is_kept = known.is_some_and(|known| !self.twice(text, known, entry.part, owner(place)));
        if let Some(slot) = self.placed.get_mut(place as usize).filter(|_| !is_kept) {
            *slot = Some(entry);
        }
    }

    /// Adds an entry whose key is not in the index.
    fn add_other(&mut self, entry: JoinedEntry) {
        let text = match &entry.key {
            DictKey::Str(text) => text.clone(),
            key => key.to_string().into(),
        };
        let known = self.by_key.get(&text).and_then(|at| self.others.get(*at as usize));
        match known.map(|known| known.part) {
            Some(known) => drop(self.twice(&text, known, entry.part, None)),
            None => {
                self.by_key.insert(text, self.others.len() as u32);
                self.others.push(entry);
            }
        }
    }

    /// Adds the finding about a key that two files hold. Returns whether the value in the file `new`
    /// replaces that in `old`, because `owner` is its name.
    fn twice(&mut self, key: &Text, old: u32, new: u32, owner: Option<&str>) -> bool {
        let (one, other) = (self.name(old), self.name(new));
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
        belongs
    }

    /// Returns the name of the file with a number.
    fn name(&self, part: u32) -> &str {
        self.names.get(part as usize).map_or("", String::as_str)
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
        let entry = self.placed.get(place)?.as_ref()?;
        Some(self.name(entry.part))
    }

    /// Adds a tensor that is known only by its key, at a place of the index, and by the reason why it
    /// is missing.
    pub(super) fn add_missing(&mut self, place: usize, key: Text, why: Text) -> Result<()> {
        let tensor = Tensor::new(self.unknown.clone(), vec![0], Layout::Missing(why));
        let tensor = self.builder.push_tensor(tensor)?;
        let id = self.builder.push(Value::Tensor(tensor))?;
        if let Some(slot) = self.placed.get_mut(place) {
            *slot = Some(JoinedEntry { key: DictKey::Str(key), id, part: NOWHERE });
        }
        Ok(())
    }

    pub(super) fn finding(&mut self, finding: Finding) {
        self.findings.insert(0, finding);
    }

    /// Returns the keys of tensors that are not in the index. Tied names and plain values may be
    /// absent from an index.
    pub(super) fn unlisted(&self) -> Vec<String> {
        let is_tensor = |entry: &&JoinedEntry| {
            matches!(self.builder.value(entry.id), Some(Value::Tensor(_) | Value::Array(_)))
        };
        self.others.iter().filter(is_tensor).map(|entry| entry.key.to_string()).collect()
    }

    /// Returns whether two files hold one key.
    pub(super) fn has_twice(&self) -> bool {
        self.twice > 0
    }

    /// Returns the joined checkpoint, or `None` if nothing was added. Its keys are in the order of the
    /// index, and then in that of the files.
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
        let entries = self.placed.into_iter().flatten().chain(self.others);
        let entries = entries.map(|entry| (entry.key, entry.id)).collect();
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
