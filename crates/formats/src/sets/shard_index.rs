//! The index of a set of shards, `model.safetensors.index.json`: the file of each key.

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use statelens_checkpoint::json::{Document, JsonNode, Parser};
use statelens_checkpoint::{
    Checkpoint, Error, FileId, FileSet, Finding, Grade, Limits, Result, Text, grouped, listed,
    order, try_alloc,
};

use super::join::{Join, ListedKeys};
use crate::joined::UnreadFiles;
use crate::paths::{base, folder};

/// The parsed index of a set.
pub(super) struct ShardIndex {
    pub(super) name: String,
    /// File names of the shards, sorted.
    pub(super) shards: Vec<String>,
    /// The keys in their order, each with the place of its shard.
    pub(super) keys: ListedKeys,
    /// The size of the tensors in bytes, as the index says.
    size: Option<u64>,
    pub(super) facts: Vec<(String, String)>,
}

impl ShardIndex {
    /// Reads an index.
    pub(super) fn read(files: &FileSet, id: FileId, limits: &Limits) -> Result<Self> {
        Self::parsed(files, id, limits, true)
    }

    /// Returns the names of the shards, sorted. Takes no memory for the keys.
    pub(super) fn shards(files: &FileSet, id: FileId, limits: &Limits) -> Result<Vec<String>> {
        Self::parsed(files, id, limits, false).map(|index| index.shards)
    }

    fn parsed(files: &FileSet, id: FileId, limits: &Limits, keyed: bool) -> Result<Self> {
        let len = files.len(id);
        Limits::check("bytes of the index", len, limits.structure)?;
        let mut index = Self {
            name: files.name(id).to_owned(),
            shards: Vec::new(),
            keys: ListedKeys::default(),
            size: None,
            facts: Vec::new(),
        };
        let text = files.read_vec(id, 0, len)?;
        let is_index = index.parse(&text, folder(files.name(id)), keyed)?;
        if !is_index {
            return Err(Error::unsupported("this JSON file is not an index of a checkpoint")
                .expected("a `weight_map` that says in which file each tensor is"));
        }
        check_count(index.shards.len() as u64, limits)?;
        match index.shards.is_empty() {
            true => Err(Error::damaged("the `weight_map` of the index is empty")),
            false => Ok(index),
        }
    }

    /// Parses the document. Returns whether it has a `weight_map`.
    fn parse(&mut self, text: &[u8], top: &str, keyed: bool) -> Result<bool> {
        let cut = |error: Error| error.advice("The index may be cut short: fetch it again.");
        let mut parser = Parser::lenient(text);
        if !parser.at_object() {
            parser.skip().and_then(|()| parser.end()).map_err(cut)?;
            return Ok(false);
        }
        if keyed {
            self.make_room(text.len() / BYTES_PER_KEY)?;
        }
        let (mut first, mut is_index) = (true, false);
        parser.object().map_err(cut)?;
        while let Some(name) = parser.entry(&mut first).map_err(cut)? {
            // As in Python, the last of two entries with one name counts.
            if name == *"weight_map" {
                is_index = parser.at_object();
                self.keys.clear();
                self.shards.clear();
            }
            match name.as_str() {
                Some("weight_map") if is_index && keyed => {
                    self.weight_map(&mut parser, top, cut)?
                }
                Some("weight_map") if is_index => self.file_names(&mut parser, top).map_err(cut)?,
                Some("metadata") if parser.at_object() => {
                    let text = parser.compact().map_err(cut)?;
                    self.metadata(&Document::parse(text.as_bytes()).map_err(cut)?);
                }
                _ => parser.skip().map_err(cut)?,
            }
        }
        parser.end().map_err(cut)?;
        Ok(is_index)
    }

    fn weight_map(
        &mut self,
        parser: &mut Parser<'_>,
        top: &str,
        cut: impl Fn(Error) -> Error,
    ) -> Result<()> {
        // The numbers of files by their names as written, and the last one.
        let mut numbers: HashMap<&[u8], u32> = HashMap::new();
        let mut last: Option<(&[u8], u32)> = None;
        let mut first = true;
        parser.object().map_err(&cut)?;
        while let Some(key) = parser.entry(&mut first).map_err(&cut)? {
            let unnamed = || Error::damaged(format!("the index gives no file name for {key}"));
            if !parser.at_text() {
                return Err(unnamed());
            }
            let raw = parser.raw_text().map_err(&cut)?;
            let known = last.filter(|(last, _)| *last == raw).map(|(_, number)| number);
            let number = match known.or_else(|| numbers.get(raw).copied()) {
                Some(number) => number,
                None => {
                    let name = Parser::lenient(raw).text().map_err(&cut)?;
                    self.shards.push(file_name(&name, top).ok_or_else(unnamed)?);
                    let number = self.shards.len() as u32 - 1;
                    try_alloc::insert(&mut numbers, raw, number)?;
                    number
                }
            };
            last = Some((raw, number));
            if self.keys.len() == self.keys.capacity() {
                self.make_room(self.keys.len().max(1))?;
            }
            self.keys.insert(key, number);
        }
        // `./a` and `a` are one file.
        let mut sorted = self.shards.clone();
        sorted.sort();
        sorted.dedup();
        let place = |name: &String| sorted.binary_search(name).unwrap_or(0) as u32;
        let places: Vec<u32> = self.shards.iter().map(place).collect();
        for number in self.keys.values_mut() {
            *number = places.get(*number as usize).copied().unwrap_or(0);
        }
        self.shards = sorted;
        Ok(())
    }

    /// Makes room for keys.
    fn make_room(&mut self, more: usize) -> Result<()> {
        let bytes = (self.keys.len() + more).saturating_mul(BYTES_OF_KEY);
        try_alloc::ahead(bytes as u64)?;
        self.keys.reserve(more);
        Ok(())
    }

    /// Collects the names of the files, without building the keys: an index may have half a million.
    fn file_names(&mut self, parser: &mut Parser<'_>, top: &str) -> Result<()> {
        let mut seen: HashSet<&[u8]> = HashSet::new();
        let mut last: &[u8] = b"";
        let mut first = true;
        parser.object()?;
        while parser.skip_name(&mut first)? {
            let raw = parser.raw_text()?;
            if raw == std::mem::replace(&mut last, raw) || !seen.insert(raw) {
                continue;
            }
            let name = Parser::lenient(raw).text()?;
            let name = file_name(&name, top);
            self.shards.push(name.ok_or_else(|| Error::damaged("a file without a name"))?);
        }
        self.shards.sort();
        self.shards.dedup();
        Ok(())
    }

    fn metadata(&mut self, json: &Document) {
        let JsonNode::Object(entries) = json.node(json.root()) else { return };
        (self.facts, self.size) = (Vec::new(), None);
        for (key, value) in entries.iter().take(MAX_FACTS) {
            if *key == *"total_size" {
                self.size = json.python(*value).to_string().parse::<f64>().ok().map(|it| it as u64);
            }
            self.facts.push((format!("Index: {key}"), json.python(*value).to_string()));
        }
    }

    /// Returns the finding about an index with another size than that of the tensors. `has_hidden`
    /// says that some tensors are not shown, since another file holds their keys, too.
    pub(super) fn other_size(&self, joined: &Checkpoint, has_hidden: bool) -> Option<Finding> {
        let said = self.size?;
        // As most are; this is faster than to visit all leaves.
        if !has_hidden && said == joined.unfolded().tensor_bytes {
            return None;
        }
        let mut seen = vec![false; joined.tensors().len()];
        let shown = joined.leaf_ids().filter_map(|id| {
            let (id, tensor) = joined.tensor_of(id)?;
            let is_new = !std::mem::replace(seen.get_mut(id.0 as usize)?, true);
            tensor.nbytes().filter(|_| is_new)
        });
        let size = shown.fold(0, u64::saturating_add);
        let is_wrong = said != size && size > 0;
        is_wrong.then(|| {
            Finding::new(Grade::Note, "The index has a wrong `total_size`").detail(format!(
                "It says {} bytes, and the tensors take {}. Libraries use it only to plan memory.",
                grouped(said),
                grouped(size)
            ))
        })
    }

    /// Returns the finding about a file next to the index that has the name of the whole model.
    pub(super) fn single_file(&self, files: &FileSet) -> Option<Finding> {
        let (stem, variant) = index_stem(&self.name);
        let name = match (variant, stem.rsplit_once('.')) {
            ("", _) => stem.to_owned(),
            (variant, Some((stem, extension))) => format!("{stem}.{variant}.{extension}"),
            (_, None) => return None,
        };
        // A name that is looked up would be requested from a server.
        let is_there = files.names().any(|(_, known)| known == name);
        let is_other = is_there && self.shards.binary_search(&name).is_err();
        is_other.then(|| {
            Finding::new(Grade::Note, format!("There is also a single file, {}", base(&name)))
                .detail(
                    "The shards that the index names are shown. transformers loads the single file \
                     if both are there.",
                )
                .advice("Open it by its name to see it, and remove the one that is old.")
        })
    }

    /// Adds keys that are in the index but in no shard, and findings about other differences.
    pub(super) fn check(
        &self,
        shards: &[(String, Option<FileId>)],
        unread: &UnreadFiles,
        join: &mut Join<'_>,
    ) -> Result<()> {
        let is_unread = |id: &Option<FileId>| id.is_some_and(|id| unread.has(id));
        let (mut lost, mut misplaced): (Vec<String>, Vec<String>) = Default::default();
        let mut extra = join.unlisted();
        order::natural(&mut extra);
        let why = |(name, id): &(String, Option<FileId>)| -> Text {
            match id {
                None => format!("it is in {name}, which was not given").into(),
                Some(_) if is_unread(id) => format!("it is in {name}, which can't be read").into(),
                Some(_) => format!("the index says that it is in {name}, and it is not").into(),
            }
        };
        let reasons: Vec<Text> = shards.iter().map(why).collect();
        for (place, (key, at)) in self.keys.iter().enumerate() {
            let at = *at as usize;
            if let Some(name) = join.file_at(place) {
                if shards[at].0 != name {
                    misplaced.push(key.to_string());
                }
                continue;
            }
            if shards[at].1.is_some() && !is_unread(&shards[at].1) {
                lost.push(key.to_string());
            }
            join.add_missing(place, key.clone(), reasons[at].clone())?;
        }
        if !lost.is_empty() {
            join.finding(
                Finding::new(
                    Grade::Damage,
                    format!("{} tensors are not in the shards that the index names", lost.len()),
                )
                .detail(format!("{}.", listed(&lost, 5)))
                .advice("The index and the shards may be of different versions: fetch both again."),
            );
        }
        if !misplaced.is_empty() {
            let title = format!("The index names the wrong shard for {}", listed(&misplaced, 5));
            join.finding(
                Finding::new(Grade::Warning, title)
                    .detail("A library that looks for a tensor by the index does not find it.")
                    .advice("Fetch the index again, or convert the checkpoint: that writes one."),
            );
        }
        if !extra.is_empty() {
            join.finding(
                Finding::new(Grade::Note, format!("{} tensors are not in the index", extra.len()))
                    .detail(format!("{}. They are shown with the others.", listed(&extra, 5))),
            );
        }
        Ok(())
    }
}

/// Returns the name of a file in an index in the folder `top`; `None` if it is not Unicode.
fn file_name(name: &Text, top: &str) -> Option<String> {
    let name = name.as_str()?;
    Some(format!("{top}{}", name.strip_prefix("./").unwrap_or(name)))
}

/// Returns whether a name is that of an index: `model.safetensors.index.json`, or
/// `model.safetensors.index.fp16.json` for a variant.
pub(super) fn is_index(name: &str) -> bool {
    let base = base(name);
    base.ends_with(".json") && base.contains(".index.")
}

/// Returns the part before `.index.`, including the folder, and the variant.
pub(super) fn index_stem(name: &str) -> (&str, &str) {
    let (stem, rest) = name.rsplit_once(".index.").unwrap_or((name, ""));
    (stem, rest.strip_suffix("json").unwrap_or(rest).trim_end_matches('.'))
}

/// Fails if a set has more shards than the limits allow.
pub(super) fn check_count(count: u64, limits: &Limits) -> Result<()> {
    Limits::check("shards", count, limits.members / MEMBERS_PER_SHARD)
}

/// The limit on shards is that on the members of an archive divided by this number.
const MEMBERS_PER_SHARD: u64 = 40;

/// Bytes of memory for each key: an entry, and up to four slots of the table.
const BYTES_OF_KEY: usize = size_of::<(u64, Text, u32)>() + 4 * size_of::<usize>();

/// Bytes of an index for each key: about as few as an entry with a short key has.
const BYTES_PER_KEY: usize = 80;

/// The maximum number of the index's metadata entries that are shown.
const MAX_FACTS: usize = 16;
